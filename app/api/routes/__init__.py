"""The routes, by noun: parse, call a verb or read a port, answer."""
