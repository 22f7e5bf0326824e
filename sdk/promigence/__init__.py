"""Promigence for Python."""
