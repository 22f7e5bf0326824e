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
  security_group_id   = "sg-redis"
  password_version    = 1
  passwords_secret_id = "passwords"
}

run "encrypted_and_closed" {
  assert {
    condition     = aws_elasticache_replication_group.this.transit_encryption_enabled && aws_elasticache_replication_group.this.transit_encryption_mode == "required"
    error_message = "Who asks for no TLS gets none."
  }

  assert {
    condition     = tobool(aws_elasticache_replication_group.this.at_rest_encryption_enabled) && aws_elasticache_replication_group.this.kms_key_id == var.kms_key_arn
    error_message = "What is on disk is not encrypted with the deployment's key."
  }

  assert {
    condition     = aws_elasticache_replication_group.this.user_group_ids == toset(["promigence-trial"])
    error_message = "Logins are not those of the group."
  }
}

run "logins" {
  assert {
    condition     = startswith(aws_elasticache_user.default.access_string, "off ") && aws_elasticache_user.default.user_name == "default"
    error_message = "Who gives no name is let in."
  }

  assert {
    condition = alltrue([
      for user in [aws_elasticache_user.control, aws_elasticache_user.flower] :
      startswith(user.access_string, "on -@all +") && !strcontains(user.access_string, "+@") && !strcontains(user.access_string, "+flush")
    ])
    error_message = "A login may do more than it is given by name."
  }

  assert {
    condition     = aws_elasticache_user.control.passwords_wo == null && aws_elasticache_user.control.passwords == null
    error_message = "The password is in the state."
  }
}

run "no_bell_is_forgotten" {
  assert {
    condition     = one(aws_elasticache_parameter_group.this.parameter).value == "noeviction"
    error_message = "A full Redis forgets bells."
  }
}

run "another_zone_takes_over" {
  assert {
    condition     = aws_elasticache_replication_group.this.automatic_failover_enabled && aws_elasticache_replication_group.this.multi_az_enabled && aws_elasticache_replication_group.this.num_cache_clusters == 2
    error_message = "The bells stop with a zone."
  }

  assert {
    condition     = output.node_ids == ["promigence-trial-001", "promigence-trial-002"]
    error_message = "Nodes are not called so."
  }
}

run "a_trial_has_one_node" {
  variables {
    replicas = 0
  }

  assert {
    condition     = aws_elasticache_replication_group.this.num_cache_clusters == 1 && !aws_elasticache_replication_group.this.automatic_failover_enabled
    error_message = "One node cannot fail over."
  }
}
