"""The nouns: frozen, without clock or I/O."""
