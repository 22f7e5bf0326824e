"""Every call as a sequence of steps, apart from I/O: what to send, and what to make of what came back."""
