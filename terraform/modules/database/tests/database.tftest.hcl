# Not mocked: a mock has no ephemeral resources, and the passwords are read by one.

run "passwords" {
  module {
    source = "./tests/passwords"
  }
}

variables {
  deployment          = "trial"
  kms_key_arn         = "arn:aws:kms:us-east-1:111122223333:key/00000000-0000-0000-0000-000000000000"
  subnet_ids          = ["subnet-a", "subnet-b"]
  security_group_id   = "sg-database"
  password_version    = 1
  passwords_secret_id = "passwords"
}

run "production_by_default" {
  assert {
    condition     = aws_db_instance.this.multi_az
    error_message = "A commit that was acknowledged is lost with one instance."
  }

  assert {
    condition     = aws_db_instance.this.storage_encrypted && aws_db_instance.this.kms_key_id == var.kms_key_arn
    error_message = "Storage is not encrypted with the deployment's key."
  }

  assert {
    condition     = !aws_db_instance.this.publicly_accessible && aws_db_instance.this.vpc_security_group_ids == toset(["sg-database"])
    error_message = "Others than who the security group names reach it."
  }

  assert {
    condition     = aws_db_instance.this.deletion_protection && !aws_db_instance.this.skip_final_snapshot && aws_db_instance.this.backup_retention_period == 14
    error_message = "It can be deleted, or the past cannot be restored."
  }

  assert {
    condition     = !aws_db_instance.this.apply_immediately && aws_db_instance.this.auto_minor_version_upgrade
    error_message = "Changes restart it under running forks, or it gets no fixes."
  }
}

run "tls_and_connections" {
  variables {
    hosts_max = 20
  }

  assert {
    condition = anytrue([
      for parameter in aws_db_parameter_group.this.parameter : parameter.name == "rds.force_ssl" && parameter.value == "1"
    ])
    error_message = "Who asks for no TLS gets none."
  }

  assert {
    condition = anytrue([
      for parameter in aws_db_parameter_group.this.parameter :
      parameter.name == "max_connections" && parameter.value == "896" && parameter.apply_method == "pending-reboot"
    ])
    error_message = "Connections do not suffice for 20 hosts and the control plane: 32 x (20 + 8)."
  }
}

run "a_log_that_ends" {
  assert {
    condition     = aws_cloudwatch_log_group.log["postgresql"].name == "/aws/rds/instance/promigence-trial/postgresql" && aws_cloudwatch_log_group.log["postgresql"].retention_in_days == 30
    error_message = "RDS makes the group itself then, and keeps its logs for ever."
  }
}

run "the_password_stays_out_of_the_state" {
  assert {
    condition     = aws_db_instance.this.password == null && aws_db_instance.this.password_wo == null && aws_db_instance.this.password_wo_version == 1
    error_message = "The password is in the state."
  }
}

run "a_trial_leaves_nothing" {
  variables {
    standby   = false
    deletable = true
  }

  assert {
    condition     = !aws_db_instance.this.deletion_protection && aws_db_instance.this.skip_final_snapshot && aws_db_instance.this.delete_automated_backups
    error_message = "Something of a trial stays behind."
  }
}

run "never_without_backups" {
  command         = plan
  expect_failures = [var.backup_days]

  variables {
    backup_days = 0
  }
}

run "more_hosts_than_connections" {
  command         = plan
  expect_failures = [var.hosts_max]

  variables {
    hosts_max = 500
  }
}
