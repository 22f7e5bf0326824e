# Letters and digits only: they stand in URLs. 43 of them are 256 bits.

ephemeral "aws_secretsmanager_random_password" "database" {
  password_length     = 43
  exclude_punctuation = true
}

ephemeral "aws_secretsmanager_random_password" "redis" {
  password_length     = 43
  exclude_punctuation = true
}

ephemeral "aws_secretsmanager_random_password" "redis_flower" {
  password_length     = 43
  exclude_punctuation = true
}

ephemeral "aws_secretsmanager_random_password" "redis_default" {
  password_length     = 43
  exclude_punctuation = true
}

ephemeral "aws_secretsmanager_random_password" "flower" {
  password_length     = 43
  exclude_punctuation = true
}

ephemeral "aws_secretsmanager_random_password" "metrics" {
  password_length     = 43
  exclude_punctuation = true
}

ephemeral "aws_secretsmanager_random_password" "key" {
  password_length     = 43
  exclude_punctuation = true
}

resource "aws_secretsmanager_secret" "passwords" {
  name                    = "${local.prefix}/passwords"
  description             = "What PostgreSQL, Redis, Flower and the metrics of this deployment ask for. Read by Terraform only."
  kms_key_id              = aws_kms_key.this.arn
  recovery_window_in_days = local.recovery
  tags                    = local.tags
}

resource "aws_secretsmanager_secret_version" "passwords" {
  secret_id = aws_secretsmanager_secret.passwords.id

  secret_string_wo_version = var.passwords_version
  secret_string_wo = jsonencode({
    database      = ephemeral.aws_secretsmanager_random_password.database.random_password
    redis         = ephemeral.aws_secretsmanager_random_password.redis.random_password
    redis_flower  = ephemeral.aws_secretsmanager_random_password.redis_flower.random_password
    redis_default = ephemeral.aws_secretsmanager_random_password.redis_default.random_password
    flower        = ephemeral.aws_secretsmanager_random_password.flower.random_password
    metrics       = ephemeral.aws_secretsmanager_random_password.metrics.random_password
  })
}

resource "aws_secretsmanager_secret" "key" {
  name                    = "${local.prefix}/key"
  description             = "What API keys of this deployment are hashed with, and in its previous version what they were hashed with before. Read by Terraform only."
  kms_key_id              = aws_kms_key.this.arn
  recovery_window_in_days = local.recovery
  tags                    = local.tags
}

resource "aws_secretsmanager_secret_version" "key" {
  secret_id                = aws_secretsmanager_secret.key.id
  secret_string_wo_version = var.key_version
  secret_string_wo         = ephemeral.aws_secretsmanager_random_password.key.random_password
}

# Read back only after it was written: the version's secret_id is the secret's.
ephemeral "aws_secretsmanager_secret_version" "passwords" {
  secret_id = aws_secretsmanager_secret_version.passwords.secret_id
}

ephemeral "aws_secretsmanager_secret_version" "key" {
  secret_id = aws_secretsmanager_secret_version.key.secret_id
}

ephemeral "aws_secretsmanager_secret_version" "previous_key" {
  count = var.keep_previous_key ? 1 : 0

  # A new version has no id before it is written, and until then the one before is not yet the previous one.
  secret_id     = aws_secretsmanager_secret_version.key.version_id == "" ? null : aws_secretsmanager_secret_version.key.secret_id
  version_stage = "AWSPREVIOUS"
}

locals {
  passwords = jsondecode(ephemeral.aws_secretsmanager_secret_version.passwords.secret_string)
}
