"""The processes of the server: Celery tasks as doorbells, billing, recovery, the watcher, the command line."""
