"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "host",
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("memory_mib", sa.Integer(), nullable=False),
        sa.Column("disk_gib", sa.Integer(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("free_memory_mib", sa.Integer(), nullable=False),
        sa.Column("free_disk_gib", sa.Integer(), nullable=False),
        sa.Column("free_slots", sa.Integer(), nullable=False),
        sa.Column("mounted", sa.Text(), nullable=False),
        sa.Column("heartbeat_ns", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("free_disk_gib >= 0", name=op.f("ck_host_free_disk_gib_not_negative")),
        sa.CheckConstraint(
            "free_memory_mib <= memory_mib AND free_disk_gib <= disk_gib AND free_slots <= slots",
            name=op.f("ck_host_no_more_free_than_there_is"),
        ),
        sa.CheckConstraint(
            "free_memory_mib >= 0", name=op.f("ck_host_free_memory_mib_not_negative")
        ),
        sa.CheckConstraint("free_slots >= 0", name=op.f("ck_host_free_slots_not_negative")),
        sa.PrimaryKeyConstraint("host_id", name="pk_host"),
    )
    op.create_table(
        "project",
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", name="pk_project"),
    )
    op.create_table(
        "quote",
        sa.Column("quote_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("quote", sa.Text(), nullable=False),
        sa.Column("spec_sha256", sa.String(), nullable=False),
        sa.Column("expires_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("quote_id", name="pk_quote"),
    )
    op.create_index("ix_quote_expires_ns", "quote", ["expires_ns"])
    op.create_table(
        "receipt",
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body_sha256", sa.String(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "key", name="pk_receipt"),
    )
    op.create_index("ix_receipt_created_ns", "receipt", ["created_ns"])
    op.create_table(
        "run",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("quote", sa.Text(), nullable=False),
        sa.Column("budget_micros", sa.BigInteger(), nullable=False),
        sa.Column("pool_micros", sa.BigInteger(), nullable=False),
        sa.Column("granted_micros", sa.BigInteger(), nullable=False),
        sa.Column("charged_micros", sa.BigInteger(), nullable=False),
        sa.Column("micros_per_hour", sa.BigInteger(), nullable=False),
        sa.Column("hold_ns", sa.BigInteger(), nullable=True),
        sa.Column("queue_timeout_ns", sa.BigInteger(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("ended_ns", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("kind IN ('user', 'build')", name=op.f("ck_run_kind_known")),
        sa.CheckConstraint(
            "state <> 'ended' OR granted_micros = 0", name=op.f("ck_run_ended_holds_no_grant")
        ),
        sa.CheckConstraint("state IN ('active', 'ended')", name=op.f("ck_run_state_known")),
        sa.CheckConstraint(
            "budget_micros = pool_micros + granted_micros + charged_micros",
            name=op.f("ck_run_budget_adds_up"),
        ),
        sa.CheckConstraint("budget_micros >= 0", name=op.f("ck_run_budget_micros_not_negative")),
        sa.CheckConstraint("charged_micros >= 0", name=op.f("ck_run_charged_micros_not_negative")),
        sa.CheckConstraint("granted_micros >= 0", name=op.f("ck_run_granted_micros_not_negative")),
        sa.CheckConstraint("pool_micros >= 0", name=op.f("ck_run_pool_micros_not_negative")),
        sa.PrimaryKeyConstraint("run_id", name="pk_run"),
    )
    op.create_index(
        "ix_run_active",
        "run",
        ["created_ns"],
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_index("ix_run_project_id_created_ns", "run", ["project_id", "created_ns"])
    op.create_table(
        "snapshot",
        sa.Column("snapshot_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("ref", sa.String(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("bundle_id", sa.String(), nullable=False),
        sa.Column("restore_key", sa.Text(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("disk_id", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("provenance", sa.Text(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("deleted_ns", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("version >= 1", name=op.f("ck_snapshot_version_from_1")),
        sa.PrimaryKeyConstraint("snapshot_id", name="pk_snapshot"),
        sa.UniqueConstraint(
            "project_id", "name", "version", name="uq_snapshot_project_id_name_version"
        ),
        sa.UniqueConstraint("project_id", "ref", name="uq_snapshot_project_id_ref"),
    )
    op.create_table(
        "api_key",
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("revoked_ns", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.project_id"], name="fk_api_key_project_id"
        ),
        sa.PrimaryKeyConstraint("key_id", name="pk_api_key"),
        sa.UniqueConstraint("digest", name="uq_api_key_digest"),
    )
    op.create_table(
        "build",
        sa.Column("build_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("template_fork_id", sa.String(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("candidate", sa.Text(), nullable=True),
        sa.Column("snapshot_ref", sa.String(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "state IN ('queued', 'building', 'verifying', 'verified', 'refused', 'failed', 'cancelled')",
            name=op.f("ck_build_state_known"),
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_build_run_id"),
        sa.PrimaryKeyConstraint("build_id", name="pk_build"),
        sa.UniqueConstraint("run_id", name="uq_build_run_id"),
        sa.UniqueConstraint("template_fork_id", name="uq_build_template_fork_id"),
    )
    op.create_index(
        "ix_build_unsettled",
        "build",
        ["created_ns"],
        sqlite_where=sa.text("state IN ('queued', 'building', 'verifying')"),
        postgresql_where=sa.text("state IN ('queued', 'building', 'verifying')"),
    )
    op.create_table(
        "fork",
        sa.Column("fork_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("snapshot", sa.String(), nullable=False),
        sa.Column("bundle_id", sa.String(), nullable=False),
        sa.Column("restore_key", sa.Text(), nullable=True),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mib", sa.Integer(), nullable=False),
        sa.Column("disk_gib", sa.Integer(), nullable=False),
        sa.Column("grant_micros", sa.BigInteger(), nullable=False),
        sa.Column("worst_micros", sa.BigInteger(), nullable=False),
        sa.Column("worst_attempt_ns", sa.BigInteger(), nullable=False),
        sa.Column("smallest_micros", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("env", sa.Text(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("stop_asked", sa.String(), nullable=True),
        sa.Column("host_id", sa.String(), nullable=True),
        sa.Column("avoid_hosts", sa.Text(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("checks", sa.Text(), nullable=False),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("queued_ns", sa.BigInteger(), nullable=False),
        sa.Column("ready_ns", sa.BigInteger(), nullable=True),
        sa.Column("ended_ns", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(state = 'ended') = (outcome IS NOT NULL) AND (state = 'ended') = (reason IS NOT NULL)",
            name=op.f("ck_fork_an_end_has_its_reason"),
        ),
        sa.CheckConstraint(
            "state <> 'ended' OR grant_micros = 0", name=op.f("ck_fork_ended_holds_no_grant")
        ),
        sa.CheckConstraint(
            "state IN ('queued', 'restoring', 'checking', 'ready', 'running', 'ended')",
            name=op.f("ck_fork_state_known"),
        ),
        sa.CheckConstraint("grant_micros >= 0", name=op.f("ck_fork_grant_micros_not_negative")),
        sa.CheckConstraint(
            "smallest_micros >= 0", name=op.f("ck_fork_smallest_micros_not_negative")
        ),
        sa.CheckConstraint(
            "worst_attempt_ns >= 0", name=op.f("ck_fork_worst_attempt_ns_not_negative")
        ),
        sa.CheckConstraint("worst_micros >= 0", name=op.f("ck_fork_worst_micros_not_negative")),
        sa.ForeignKeyConstraint(["host_id"], ["host.host_id"], name="fk_fork_host_id"),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_fork_run_id"),
        sa.PrimaryKeyConstraint("fork_id", name="pk_fork"),
    )
    op.create_index(
        "ix_fork_live_of_host",
        "fork",
        ["host_id"],
        sqlite_where=sa.text("state <> 'ended'"),
        postgresql_where=sa.text("state <> 'ended'"),
    )
    op.create_index(
        "ix_fork_live_of_run",
        "fork",
        ["run_id"],
        sqlite_where=sa.text("state <> 'ended'"),
        postgresql_where=sa.text("state <> 'ended'"),
    )
    op.create_index(
        "ix_fork_live_of_snapshot",
        "fork",
        ["project_id", "snapshot"],
        sqlite_where=sa.text("state <> 'ended'"),
        postgresql_where=sa.text("state <> 'ended'"),
    )
    op.create_index(
        "ix_fork_queued",
        "fork",
        ["host_id", "queued_ns", "index"],
        sqlite_where=sa.text("state = 'queued'"),
        postgresql_where=sa.text("state = 'queued'"),
    )
    op.create_index("ix_fork_run_id_index", "fork", ["run_id", "index"])
    op.create_table(
        "ledger",
        sa.Column("subject_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("pool_micros", sa.BigInteger(), nullable=False),
        sa.Column("granted_micros", sa.BigInteger(), nullable=False),
        sa.Column("charged_micros", sa.BigInteger(), nullable=False),
        sa.Column("booked_ns", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "kind = 'budget' OR pool_micros + granted_micros + charged_micros = 0",
            name=op.f("ck_ledger_moves_and_makes_nothing"),
        ),
        sa.CheckConstraint(
            "kind IN ('budget', 'charge', 'top_up', 'grant', 'return', 'share')",
            name=op.f("ck_ledger_kind_known"),
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_ledger_run_id"),
        sa.PrimaryKeyConstraint("subject_id", "kind", "sequence", name="pk_ledger"),
    )
    op.create_index("ix_ledger_run_id", "ledger", ["run_id"])
    op.create_table(
        "run_label",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_run_label_run_id"),
        sa.PrimaryKeyConstraint("run_id", "name", name="pk_run_label"),
    )
    op.create_index("ix_run_label_name_value", "run_label", ["name", "value"])
    op.create_table(
        "attempt",
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("fork_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("claim", sa.String(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("opened_boot_ns", sa.BigInteger(), nullable=False),
        sa.Column("lease_ns", sa.BigInteger(), nullable=False),
        sa.Column("micros_per_hour", sa.BigInteger(), nullable=False),
        sa.Column("ready_boot_ns", sa.BigInteger(), nullable=True),
        sa.Column("closed_boot_ns", sa.BigInteger(), nullable=True),
        sa.Column("charged_micros", sa.BigInteger(), nullable=False),
        sa.Column("verification_micros", sa.BigInteger(), nullable=False),
        sa.Column("tasks_micros", sa.BigInteger(), nullable=False),
        sa.Column("environment_micros", sa.BigInteger(), nullable=False),
        sa.Column("late_ns", sa.BigInteger(), nullable=False),
        sa.Column("intent", sa.Boolean(), nullable=False),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("opened_ns", sa.BigInteger(), nullable=False),
        sa.Column("ready_ns", sa.BigInteger(), nullable=True),
        sa.Column("closed_ns", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "charged_micros >= 0", name=op.f("ck_attempt_charged_micros_not_negative")
        ),
        sa.CheckConstraint(
            "closed_boot_ns IS NULL OR charged_micros = verification_micros + tasks_micros + environment_micros",
            name=op.f("ck_attempt_parts_add_up"),
        ),
        sa.CheckConstraint(
            "environment_micros >= 0", name=op.f("ck_attempt_environment_micros_not_negative")
        ),
        sa.CheckConstraint("late_ns >= 0", name=op.f("ck_attempt_late_ns_not_negative")),
        sa.CheckConstraint("lease_ns >= 0", name=op.f("ck_attempt_lease_ns_not_negative")),
        sa.CheckConstraint("tasks_micros >= 0", name=op.f("ck_attempt_tasks_micros_not_negative")),
        sa.CheckConstraint(
            "verification_micros >= 0", name=op.f("ck_attempt_verification_micros_not_negative")
        ),
        sa.ForeignKeyConstraint(["fork_id"], ["fork.fork_id"], name="fk_attempt_fork_id"),
        sa.ForeignKeyConstraint(["host_id"], ["host.host_id"], name="fk_attempt_host_id"),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_attempt_run_id"),
        sa.PrimaryKeyConstraint("attempt_id", name="pk_attempt"),
        sa.UniqueConstraint("fork_id", "number", name="uq_attempt_fork_id_number"),
    )
    op.create_index(
        "ix_attempt_open",
        "attempt",
        ["attempt_id"],
        sqlite_where=sa.text("closed_boot_ns IS NULL"),
        postgresql_where=sa.text("closed_boot_ns IS NULL"),
    )
    op.create_index(
        "ix_attempt_open_of_host",
        "attempt",
        ["host_id"],
        sqlite_where=sa.text("closed_boot_ns IS NULL"),
        postgresql_where=sa.text("closed_boot_ns IS NULL"),
    )
    op.create_index("ix_attempt_run_id_opened_ns", "attempt", ["run_id", "opened_ns"])
    op.create_table(
        "build_line",
        sa.Column("build_id", sa.String(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["build_id"], ["build.build_id"], name="fk_build_line_build_id"),
        sa.PrimaryKeyConstraint("build_id", "n", name="pk_build_line"),
    )
    op.create_table(
        "exec",
        sa.Column("exec_id", sa.String(), nullable=False),
        sa.Column("fork_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("file", sa.Text(), nullable=True),
        sa.Column("asked_ns", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'ended', 'lost')", name=op.f("ck_exec_state_known")
        ),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.attempt_id"], name="fk_exec_attempt_id"),
        sa.ForeignKeyConstraint(["fork_id"], ["fork.fork_id"], name="fk_exec_fork_id"),
        sa.PrimaryKeyConstraint("exec_id", name="pk_exec"),
    )
    op.create_index("ix_exec_fork_id", "exec", ["fork_id"])
    op.create_index(
        "ix_exec_unfinished",
        "exec",
        ["attempt_id"],
        sqlite_where=sa.text("state IN ('queued', 'running')"),
        postgresql_where=sa.text("state IN ('queued', 'running')"),
    )
    op.create_table(
        "sample",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("sample", sa.Text(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempt.attempt_id"], name="fk_sample_attempt_id"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_sample_run_id"),
        sa.PrimaryKeyConstraint("run_id", "sample", name="pk_sample"),
    )
