"""Who may log in at the database and at the queue, and what each may do there."""
