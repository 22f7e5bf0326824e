"""A backup of PostgreSQL put back under machines that run: `python -m drills.restore`."""
