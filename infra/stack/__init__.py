"""The stack of one checkout: its processes as data, started and kept by a supervisor, stopped without a trace."""
