"""Amazon's cloud: the only place that speaks to it."""
