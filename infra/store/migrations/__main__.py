"""`python -m infra.store.migrations what it changes`: write the next migration after the tables were changed."""

from __future__ import annotations

import sys

from alembic import command
from alembic.script import ScriptDirectory

from infra.store.engine import Database
from infra.store.migrate import config, migrating


def propose(message: str) -> None:
    """Write the next migration: from what there are to what the tables say now. A person reads and corrects it."""
    database = Database("sqlite:///:memory:")
    with migrating(database) as connection:
        command.upgrade(config(connection), "head")
        number = len(list(ScriptDirectory.from_config(config()).walk_revisions())) + 1
        command.revision(config(connection), message, autogenerate=True, rev_id=f"{number:04}")
    database.close()


if __name__ == "__main__":
    propose(" ".join(sys.argv[1:]))
