"""Traces of this stack on its host and in its queue: adapters that see, and remove what they are told to.

Each looks only below this stack's own directory, or for names that only this product gives; whether something is in use
is not theirs to say (`app/flow/leaks.py`).
"""
