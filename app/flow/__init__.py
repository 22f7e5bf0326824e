"""The verbs: one file a step, each taking ports."""
