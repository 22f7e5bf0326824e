"""The wire's shapes, by noun: what may come in (nothing unknown, everything bounded) and what goes out."""
