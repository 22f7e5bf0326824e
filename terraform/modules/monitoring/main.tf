# Logs that end, numbers out of them, alarms on those, and a topic that tells.

data "aws_caller_identity" "this" {}

locals {
  name      = "promigence-${var.deployment}"
  tags      = { "promigence:deployment" = var.deployment }
  namespace = "Promigence/${var.deployment}"
  parts     = toset(["api", "billing", "credentials", "flower", "leave", "worker"])

  # Fields of the billing worker's line `health`; each becomes a metric of the same name.
  health_event = "health"
  health_fields = toset([
    "tick_age_seconds", "queue_age_seconds", "exec_age_seconds", "ended_forks", "env_failed_share", "late_kills", "leaks",
    "leaks_usd_per_month", "idle_commitment_usd_per_hour", "machines", "slots", "free_slots", "quarantined_hosts",
    "wanted_slots", "wanted_hosts", "present_hosts", "hopeless_forks", "silent_instances",
  ])
}

resource "aws_cloudwatch_log_group" "part" {
  for_each = local.parts

  name              = "/promigence/${var.deployment}/${each.key}"
  retention_in_days = var.log_days
  kms_key_id        = var.kms_key_arn
  tags              = local.tags
}

resource "aws_cloudwatch_log_metric_filter" "health" {
  for_each = local.health_fields

  name           = "${local.name}-${each.key}"
  log_group_name = aws_cloudwatch_log_group.part["billing"].name
  pattern        = "{ ($.event = \"${local.health_event}\") && ($.${each.key} = *) }"

  metric_transformation {
    namespace = local.namespace
    name      = each.key
    value     = "$.${each.key}"
  }
}

# What a host finds on itself: leftovers of machines, and it says each once.
resource "aws_cloudwatch_log_metric_filter" "host_leaks" {
  name           = "${local.name}-host-leaks"
  log_group_name = aws_cloudwatch_log_group.part["worker"].name
  pattern        = "{ $.event = \"leak\" }"

  metric_transformation {
    namespace     = local.namespace
    name          = "host_leaks"
    value         = "1"
    default_value = "0"
  }
}

resource "aws_sns_topic" "alarms" {
  name              = "${local.name}-alarms"
  kms_master_key_id = var.kms_key_arn
  tags              = local.tags
}

resource "aws_sns_topic_policy" "alarms" {
  arn = aws_sns_topic.alarms.arn

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "AlarmsOfThisAccount"
      Effect    = "Allow"
      Principal = { Service = "cloudwatch.amazonaws.com" }
      Action    = "sns:Publish"
      Resource  = aws_sns_topic.alarms.arn
      Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.this.account_id } }
    }]
  })
}

resource "aws_sns_topic_subscription" "email" {
  for_each = var.emails

  topic_arn = aws_sns_topic.alarms.arn
  protocol  = "email"
  endpoint  = each.key
}
