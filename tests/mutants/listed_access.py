"""The list, goes on: who may do what, and what is written down of it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

# The page that another test of it reads is not among what is copied.
SCOPES = ("tests/api/test_scopes.py", "-k", "not page")
FOREIGN = ("tests/api/test_foreign.py",)
AUDIT = ("tests/api/test_audit.py",)
KEYS = ("tests/api/test_keys.py",)
STORE = ("tests/contract/test_store_audit.py", "-k", "sqlite")

GUARD = "app/api/guard.py"
TABLE_OF_KEYS = "infra/store/keys.py"

ACCESS_MUTANTS = (
    Mutant(
        GUARD,
        "        caller_of(request).need(need.scope)\n        return cast",
        "        return cast",
        "what only reads needs its scope too",
        SCOPES,
    ),
    Mutant(
        GUARD,
        "        await context.run(context.ports.audit.begin, entry)\n        request.state",
        "        request.state",
        "a change is in the log before it is made",
        AUDIT,
    ),
    Mutant(
        GUARD,
        "if not refused.retryable:",
        "if refused.retryable:",
        "a refusal for good is in the log, one for now is not",
        AUDIT,
    ),
    Mutant(
        "infra/store/execs.py",
        "            write_entry(at, entry, now_ns)\n",
        "",
        "a command is in the log with its row",
        AUDIT,
    ),
    Mutant(
        "app/flow/build.py",
        "return bool(ports.uploads.known(project_id, (sha256,))) and ports",
        "return ports",
        "a hash opens no bytes of another project",
        FOREIGN,
    ),
    Mutant(
        "app/domain/host_page.py",
        "for each in host.mounted if own is None or each in own",
        "for each in host.mounted",
        "a host's page names no bundle of another project",
        FOREIGN,
    ),
    Mutant(
        TABLE_OF_KEYS,
        "            project = project.where(api_keys.c.project_id == of)\n",
        "            pass\n",
        "a key of another project is not there to be revoked",
        STORE,
    ),
    Mutant(
        TABLE_OF_KEYS,
        "if Scope.ADMIN in each.scopes and each.is_live(now_ns)",
        "if Scope.ADMIN in each.scopes",
        "a key that is over does not stand in for the last one",
        KEYS,
    ),
    Mutant(
        TABLE_OF_KEYS,
        "row.digest != present or row.secret_id is None or",
        "row.secret_id is None or",
        "a key of the previous secret is hashed anew",
        STORE,
    ),
    Mutant(
        "app/flow/keys.py",
        "    caller.may_give(given)\n",
        "",
        "no key gives what it lacks",
        KEYS,
    ),
)
