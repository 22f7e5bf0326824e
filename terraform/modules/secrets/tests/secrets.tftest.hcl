# Not mocked: a mock has no ephemeral resources.

variables {
  deployment = "trial"
  database   = { address = "database.internal", port = 5432, name = "promigence", username = "promigence" }
  redis      = { address = "redis.internal", port = 6379, username = "promigence-control", flower_username = "promigence-flower" }
}

run "a_key_that_turns" {
  assert {
    condition     = aws_kms_key.this.enable_key_rotation && aws_kms_key.this.deletion_window_in_days == 30
    error_message = "The key never changes, or is gone at once."
  }

  assert {
    condition = toset([
      for statement in jsondecode(aws_kms_key.this.policy).Statement : try(statement.Principal.Service, statement.Principal.AWS)
    ]) == toset(["arn:aws:iam::111122223333:root", "cloudwatch.amazonaws.com", "logs.us-east-1.amazonaws.com"])
    error_message = "Others than this account and its logs and alarms may use the key."
  }

  assert {
    condition = alltrue([
      for statement in jsondecode(aws_kms_key.this.policy).Statement :
      can(statement.Condition) if can(statement.Principal.Service)
    ])
    error_message = "A service may use the key for other accounts."
  }
}

run "named_after_the_deployment" {
  assert {
    condition     = output.control_secret_name == "promigence/trial/control"
    error_message = "Control instances look for their secret elsewhere."
  }

  assert {
    condition = alltrue([
      for secret in [aws_secretsmanager_secret.control, aws_secretsmanager_secret.passwords, aws_secretsmanager_secret.key] :
      secret.kms_key_id == aws_kms_key.this.arn && secret.recovery_window_in_days == 30
    ])
    error_message = "A secret is encrypted with another key, or is gone at once when it is deleted."
  }
}

run "nothing_in_the_state" {
  assert {
    condition = alltrue([
      for version in [
        aws_secretsmanager_secret_version.control,
        aws_secretsmanager_secret_version.passwords,
        aws_secretsmanager_secret_version.key,
      ] : version.secret_string == null && version.secret_string_wo == null
    ])
    error_message = "A value is in the state."
  }
}

run "another_address_is_written_anew" {
  variables {
    database = { address = "restored.internal", port = 5432, name = "promigence", username = "promigence" }
  }

  assert {
    condition     = aws_secretsmanager_secret_version.control.secret_string_wo_version != run.nothing_in_the_state.control_version
    error_message = "Control instances go on with the old address."
  }
}

run "no_previous_key_at_first" {
  command         = plan
  expect_failures = [var.keep_previous_key]

  variables {
    keep_previous_key = true
  }
}

run "a_new_key_beside_the_old_one" {
  variables {
    key_version       = 2
    keep_previous_key = true
  }

  assert {
    condition     = aws_secretsmanager_secret_version.key.secret_string_wo_version == 2
    error_message = "The secret that keys are hashed with is still the old one."
  }
}
