"""The history of the schema; `infra/store/migrate.py` runs it."""
