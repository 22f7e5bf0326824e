"""Promigence in plain Python: domain, flow and API; knows no vendor."""
