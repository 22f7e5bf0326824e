"""What a guest says to its host, made hostile by a fuzzer: see `targets.py` for what is promised of each parser."""
