# What a control instance fetches when it starts; `promigence-server credentials` makes a file of each value.

locals {
  redis_place = "${var.redis.address}:${var.redis.port}/0"
}

resource "aws_secretsmanager_secret" "control" {
  name                    = "${local.prefix}/control"
  description             = "What API, billing worker and Flower of this deployment start with."
  kms_key_id              = aws_kms_key.this.arn
  recovery_window_in_days = local.recovery
  tags                    = local.tags
}

resource "aws_secretsmanager_secret_version" "control" {
  secret_id                = aws_secretsmanager_secret.control.id
  secret_string_wo_version = local.control_version

  secret_string_wo = jsonencode(merge(
    {
      database_url = join("", [
        "postgresql://${var.database.username}:${local.passwords.database}@${var.database.address}:${var.database.port}/${var.database.name}",
        "?sslmode=verify-full&sslrootcert=${var.database_ca_file}",
      ])
      redis_url        = "rediss://${var.redis.username}:${local.passwords.redis}@${local.redis_place}"
      flower_redis_url = "rediss://${var.redis.flower_username}:${local.passwords.redis_flower}@${local.redis_place}"
      key_secret       = ephemeral.aws_secretsmanager_secret_version.key.secret_string
      flower_password  = local.passwords.flower
      metrics_token    = local.passwords.metrics
    },
    { for previous in ephemeral.aws_secretsmanager_secret_version.previous_key : "key_secret_previous" => previous.secret_string },
  ))
}
