"""The HTTP API: parse, call a verb, answer."""
