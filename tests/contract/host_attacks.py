"""What somebody with a host's login would write: as `host0`, about a run that `host1` has a part in too.

Names in braces are of rows: see `test_host_role.py`.
"""

from __future__ import annotations

# What is read must be refused, or not be there.
UNSEEN = (
    *(
        f"SELECT 1 FROM {each}"
        for each in ("api_key", "audit", "receipt", "quote", "project_month")
    ),
    *(
        f"SELECT 1 FROM {each}"
        for each in ("run_label", "upload", "control_process", "ledger", "event")
    ),
    "SELECT monthly_budget_micros FROM project",
    "SELECT max_forks FROM project",
    "SELECT * FROM project",
    "SELECT 1 FROM attempt WHERE host_id <> 'host0'",
    "SELECT 1 FROM exec WHERE attempt_id = '{others}'",
    "SELECT 1 FROM run WHERE run_id <> '{run}'",
    "SELECT 1 FROM fork WHERE run_id <> '{run}'",
    "SELECT 1 FROM pg_authid",
    "SELECT rolpassword FROM pg_authid WHERE rolname = current_user",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_ls_dir('/')",
    "COPY (SELECT 1) TO PROGRAM 'id'",
    "COPY worker FROM PROGRAM 'id'",
    "COPY worker FROM '/etc/passwd'",
    "SELECT lo_import('/etc/passwd')",
    "SELECT 1 FROM host, LATERAL (SELECT digest FROM api_key LIMIT 1) k",
)

# What is written must be refused, or reach no row.
UNTOUCHED = (
    # another host's
    "UPDATE attempt SET charged_micros = 1, closed_boot_ns = 1 WHERE attempt_id = '{others}'",
    "UPDATE attempt SET claim = 'mine' WHERE host_id = 'host1'",
    "DELETE FROM attempt WHERE attempt_id = '{others}'",
    "UPDATE exec SET state = 'lost' WHERE attempt_id = '{others}'",
    "UPDATE fork SET state = 'queued', host_id = NULL, attempt_id = NULL WHERE fork_id = '{others_fork}'",
    "UPDATE fork SET grant_micros = 0 WHERE fork_id = '{others_waiting}'",
    "UPDATE fork SET host_id = 'host0' WHERE host_id = 'host1'",
    "UPDATE host SET quarantine = NULL, free_slots = 0 WHERE host_id = 'host1'",
    "UPDATE worker SET draining = true WHERE host_id = 'host1'",
    "DELETE FROM worker WHERE host_id = 'host1'",
    "DELETE FROM trial WHERE host_id = 'host1'",
    "UPDATE resource SET gone_ns = 1 WHERE host_id = 'host1'",
    "INSERT INTO worker SELECT 'forged', 'host1', 'b', 1, 1, 'v', false, 1, 1, NULL",
    "INSERT INTO trial VALUES ('forged', 'host1', 1, 1, 1, 1)",
    'INSERT INTO host SELECT (jsonb_populate_record(h, \'{{"host_id": "host2"}}\')).* FROM host h LIMIT 1',
    # its own, beyond what its machine's life is
    "UPDATE host SET host_id = 'host1' WHERE host_id = 'host0'",
    "UPDATE fork SET host_id = 'host1' WHERE host_id = 'host0'",
    "UPDATE attempt SET host_id = 'host1'",
    "UPDATE attempt SET lease_ns = lease_ns * 10",
    "UPDATE attempt SET micros_per_hour = 1",
    "UPDATE fork SET grant_micros = grant_micros + 1 WHERE fork_id = '{fork}'",
    "UPDATE fork SET grant_micros = grant_micros + 1, attempt_id = NULL WHERE fork_id = '{fork}'",
    "UPDATE fork SET state = 'ended', reason = 'cancelled', outcome = 'cancelled', grant_micros = 0 "
    "WHERE fork_id = '{waiting}'",
    "UPDATE fork SET stop_asked = NULL",
    "UPDATE fork SET env = '[]'",
    "UPDATE fork SET attempt_id = '{others}' WHERE fork_id = '{fork}'",
    # money
    "UPDATE run SET charged_micros = budget_micros, granted_micros = 0, pool_micros = 0",
    "UPDATE run SET charged_micros = charged_micros + 1, granted_micros = granted_micros - 1",
    "UPDATE run SET budget_micros = budget_micros * 2",
    "UPDATE run SET state = 'ended'",
    "UPDATE run SET spec = '{{}}'",
    "INSERT INTO ledger VALUES ('{others}', 'charge', 0, '{run}', 0, -1, 1, 1)",
    "INSERT INTO ledger VALUES ('{mine}', 'charge', 0, '{run}', 0, -200000001, 200000001, 1)",
    "INSERT INTO ledger VALUES ('{mine}', 'charge', 1, '{run}', 0, -1, 1, 1)",
    "INSERT INTO ledger VALUES ('{mine}', 'top_up', 0, '{run}', -200000000, 200000000, 0, 1)",
    "INSERT INTO ledger VALUES ('{mine}', 'grant', 0, '{run}', -1, 1, 0, 1)",
    "INSERT INTO ledger VALUES ('{run}', 'share', 7, '{run}', -1, 1, 0, 1)",
    "INSERT INTO ledger VALUES ('{run}', 'budget', 7, '{run}', 1000, 0, 0, 1)",
    "INSERT INTO ledger VALUES ('{fork}', 'return', 0, '{run}', 200000000, -200000000, 0, 1)",
    "INSERT INTO ledger VALUES ('{others_fork}', 'return', 0, '{run}', 1, -1, 0, 1)",
    "DELETE FROM ledger",
    "UPDATE project SET live_forks = live_forks + 1",
    "UPDATE project SET max_forks = NULL",
    "UPDATE project SET monthly_budget_micros = NULL",
    "UPDATE project_month SET committed_micros = 0",
    "INSERT INTO api_key VALUES ('k', 'default', 'n', 'p', 'd', 1)",
    "UPDATE api_key SET revoked_ns = NULL",
    # a machine where none is due
    "INSERT INTO attempt (attempt_id, fork_id, run_id, number, host_id, claim, boot_id, opened_boot_ns, lease_ns, "
    "micros_per_hour, charged_micros, verification_micros, tasks_micros, environment_micros, late_ns, intent, "
    "opened_ns, epoch) SELECT 'forged', '{others_waiting}', run_id, 1, 'host0', 'c', 'b', 1, 1, micros_per_hour, "
    "0, 0, 0, 0, 0, false, 1, 1 FROM run WHERE run_id = '{run}'",
    "INSERT INTO attempt (attempt_id, fork_id, run_id, number, host_id, claim, boot_id, opened_boot_ns, lease_ns, "
    "micros_per_hour, charged_micros, verification_micros, tasks_micros, environment_micros, late_ns, intent, "
    "opened_ns, epoch) SELECT 'forged', '{waiting}', run_id, 1, 'host0', 'c', 'b', 1, 1000000000000000, "
    "micros_per_hour, 0, 0, 0, 0, 0, false, 1, 1 FROM run WHERE run_id = '{run}'",
    "INSERT INTO attempt (attempt_id, fork_id, run_id, number, host_id, claim, boot_id, opened_boot_ns, lease_ns, "
    "micros_per_hour, charged_micros, verification_micros, tasks_micros, environment_micros, late_ns, intent, "
    "opened_ns, epoch) SELECT 'forged', '{waiting}', run_id, 1, 'host0', 'c', 'b', 1, 1, micros_per_hour, "
    "0, 0, 0, 0, 0, false, 9000000000000000000, 1 FROM run WHERE run_id = '{run}'",
    # what was told, and what is told of others
    "UPDATE event SET kind = 'ready'",
    "DELETE FROM event",
    "INSERT INTO event VALUES ('{run}', 1000, 1, 'ready', NULL, NULL, NULL, 'host0', NULL, '{{}}')",
    "INSERT INTO event VALUES ('{other_run}', 1, 1, 'ready', NULL, NULL, NULL, 'host0', NULL, '{{}}')",
    "UPDATE event_count SET events = 0 WHERE run_id = '{other_run}'",
    # forks and snapshots out of nothing
    'INSERT INTO fork SELECT (jsonb_populate_record(f, \'{{"fork_id": "forged", "host_id": null, '
    '"attempt_id": null, "state": "queued"}}\')).* FROM fork f WHERE fork_id = \'{waiting}\'',
    "INSERT INTO snapshot (snapshot_id, project_id, name, version, ref, definition, bundle_id, restore_key, boot_id, "
    "disk_id, size_bytes, evidence, provenance, created_ns) "
    "VALUES ('s', 'default', 'task-suite', 9, 'task-suite@9', '{{}}', 'b', '{{}}', 'b', 'd', 1, '{{}}', '{{}}', 1)",
    "UPDATE snapshot SET bundle_id = 'evil'",
    "UPDATE warm_target SET hosts = 1000",
    "UPDATE deployment SET epoch = epoch + 1",
    # the database itself
    "CREATE TABLE public.evil (x int)",
    "CREATE TEMPORARY TABLE evil (x int)",
    "CREATE SCHEMA evil",
    "CREATE FUNCTION public.evil() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OR REPLACE FUNCTION public.promigence_host_id() RETURNS text LANGUAGE sql AS $$ SELECT 'host1' $$",
    "ALTER TABLE attempt DISABLE ROW LEVEL SECURITY",
    "DROP POLICY promigence_host_select ON attempt",
    "DROP TABLE attempt",
    "TRUNCATE attempt",
    "ALTER TABLE attempt DISABLE TRIGGER ALL",
    "SET session_replication_role = replica",
    "SET row_security = off; SELECT 1 FROM attempt",
    "LOCK TABLE run IN ACCESS EXCLUSIVE MODE",
    "SET ROLE promigence_host",
    "SET ROLE postgres",
    "SET ROLE promigence_host_host1",
    "SET SESSION AUTHORIZATION promigence_host_host1",
    "ALTER ROLE promigence_host_host1 PASSWORD 'mine'",
    "ALTER ROLE current_user SUPERUSER",
    "ALTER ROLE current_user BYPASSRLS",
    "ALTER ROLE promigence_host_host1 RENAME TO promigence_host_host2",
    "CREATE ROLE evil",
    "GRANT promigence_host TO promigence_host_host1",
    "GRANT postgres TO current_user",
    "DO $$ BEGIN PERFORM public.promigence_update_run(); END $$",
    "CREATE EXTENSION dblink",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres'",
)
