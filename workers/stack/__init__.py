"""The stack of one directory: `up`, `down` and `status`, where supervisor, store, machines and probes meet."""
