"""The compose file on a real Docker engine: what its services do, what outlives what, what is left afterwards."""
