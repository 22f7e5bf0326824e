# Redis rings the bells; the truth is in the rows. So nothing of it is backed up, and all of it may be lost.

locals {
  name = "promigence-${var.deployment}"
  tags = { "promigence:deployment" = var.deployment }
  port = 6379

  passwords = jsondecode(ephemeral.aws_secretsmanager_secret_version.passwords.secret_string)
}

ephemeral "aws_secretsmanager_secret_version" "passwords" {
  secret_id = var.passwords_secret_id
}

resource "aws_elasticache_subnet_group" "this" {
  name       = local.name
  subnet_ids = var.subnet_ids
  tags       = local.tags
}

resource "aws_elasticache_parameter_group" "this" {
  name        = local.name
  family      = "valkey7"
  description = "A full Redis refuses a bell aloud and forgets none"
  tags        = local.tags

  parameter {
    name  = "maxmemory-policy"
    value = "noeviction"
  }
}

# What each login may do, as infra/queue/rules.py says it; a test holds these to those.
locals {
  rules = {
    control = join(" ", [
      "on",
      "-@all",
      "+ping",
      "+hello",
      "+auth",
      "+select",
      "+client|setname",
      "+multi",
      "+exec",
      "+discard",
      "+lpush",
      "+rpush",
      "+brpop",
      "+rpop",
      "+llen",
      "+exists",
      "+del",
      "+sadd",
      "+srem",
      "+smembers",
      "+blpop",
      "+expire",
      "+scan",
      "+sscan",
      "+ttl",
      "+type",
      "+object|idletime",
      "+set",
      "+get",
      "+subscribe",
      "+unsubscribe",
      "+psubscribe",
      "+punsubscribe",
      "+publish",
      "~host.*",
      "~worker.*",
      "~control",
      "~control.*",
      "~promigence:*",
      "~_kombu.binding.celery.pidbox",
      "~_kombu.binding_permanent.celery.pidbox",
      "~_kombu.binding.reply.celery.pidbox",
      "~_kombu.binding_permanent.reply.celery.pidbox",
      "~_kombu.binding.celeryev",
      "~_kombu.binding_permanent.celeryev",
      "~*.reply.celery.pidbox",
      "&/0.celery.pidbox",
      "&/0.celeryev/*",
      "&promigence:wake:*",
    ])
    flower = join(" ", [
      "on",
      "-@all",
      "+ping",
      "+hello",
      "+auth",
      "+select",
      "+client|setname",
      "+multi",
      "+exec",
      "+discard",
      "+lpush",
      "+rpush",
      "+brpop",
      "+rpop",
      "+llen",
      "+exists",
      "+del",
      "+sadd",
      "+srem",
      "+smembers",
      "+publish",
      "%R~host.*",
      "%R~worker.*",
      "%R~control",
      "%R~control.*",
      "~_kombu.binding.reply.celery.pidbox",
      "~_kombu.binding_permanent.reply.celery.pidbox",
      "~_kombu.binding.celeryev",
      "~_kombu.binding_permanent.celeryev",
      "~*.reply.celery.pidbox",
      "~celeryev.*",
      "&/0.celery.pidbox",
      "(+subscribe +unsubscribe +psubscribe +punsubscribe &/0.celeryev/*)",
    ])
  }
}

# Whoever gives no name is `default`, and it is off; ElastiCache wants a password of it all the same.
resource "aws_elasticache_user" "default" {
  user_id              = "pmg-${var.deployment}-default"
  user_name            = "default"
  engine               = "valkey"
  access_string        = "off ~none -@all"
  passwords_wo         = local.passwords.redis_default
  passwords_wo_version = var.password_version
  tags                 = local.tags
}

resource "aws_elasticache_user" "control" {
  user_id              = "pmg-${var.deployment}-control"
  user_name            = "promigence-control"
  engine               = "valkey"
  access_string        = local.rules.control
  passwords_wo         = local.passwords.redis
  passwords_wo_version = var.password_version
  tags                 = local.tags
}

resource "aws_elasticache_user" "flower" {
  user_id              = "pmg-${var.deployment}-flower"
  user_name            = "promigence-flower"
  engine               = "valkey"
  access_string        = local.rules.flower
  passwords_wo         = local.passwords.redis_flower
  passwords_wo_version = var.password_version
  tags                 = local.tags
}

resource "aws_elasticache_user_group" "this" {
  user_group_id = local.name
  engine        = "valkey"
  user_ids = [
    aws_elasticache_user.default.user_id,
    aws_elasticache_user.control.user_id,
    aws_elasticache_user.flower.user_id,
  ]
  tags = local.tags

  lifecycle {
    # Each host has a user of its own, which the billing worker puts into the group when the instance comes, and takes out.
    ignore_changes = [user_ids]
  }
}

resource "aws_elasticache_replication_group" "this" {
  replication_group_id = local.name
  description          = "Bells of Promigence ${var.deployment}"
  engine               = "valkey"
  engine_version       = var.engine_version
  node_type            = var.node_type
  port                 = local.port
  parameter_group_name = aws_elasticache_parameter_group.this.name

  num_cache_clusters         = 1 + var.replicas
  automatic_failover_enabled = var.replicas > 0
  multi_az_enabled           = var.replicas > 0

  subnet_group_name  = aws_elasticache_subnet_group.this.name
  security_group_ids = [var.security_group_id]
  user_group_ids     = [aws_elasticache_user_group.this.user_group_id]

  transit_encryption_enabled = true
  transit_encryption_mode    = "required"
  at_rest_encryption_enabled = true
  kms_key_id                 = var.kms_key_arn

  snapshot_retention_limit   = 0
  auto_minor_version_upgrade = true
  maintenance_window         = "sun:05:30-sun:06:30"
  apply_immediately          = false

  tags = local.tags
}
