"""An upgrade from the release before, under work that goes on: `python -m drills.upgrade`."""
