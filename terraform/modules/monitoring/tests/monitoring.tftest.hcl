mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "111122223333" }
  }
}

variables {
  deployment     = "trial"
  kms_key_arn    = "arn:aws:kms:us-east-1:111122223333:key/00000000-0000-0000-0000-000000000000"
  database       = { identifier = "promigence-trial", storage_gib = 100, connections = 576 }
  redis_node_ids = ["promigence-trial-001", "promigence-trial-002"]
}

run "logs_end_and_are_encrypted" {
  assert {
    condition     = aws_cloudwatch_metric_alarm.billing_stands.treat_missing_data == "notBreaching"
    error_message = "A deployment that has no image yet is an alarm."
  }

  assert {
    condition = alltrue([
      for group in aws_cloudwatch_log_group.part : group.retention_in_days == 30 && group.kms_key_id == var.kms_key_arn
    ])
    error_message = "Logs are kept for ever, or by another key."
  }

  assert {
    condition     = output.log_groups.billing == "/promigence/trial/billing"
    error_message = "Instances send their logs elsewhere."
  }
}

run "silence_is_an_alarm_once_there_is_who_should_speak" {
  variables {
    load_balancer = { arn_suffix = "app/pmg-trial/0123456789abcdef", target_groups = {} }
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.billing_stands.treat_missing_data == "breaching"
    error_message = "A billing worker that is not there makes no alarm."
  }

  assert {
    condition = alltrue([
      for alarm in concat(values(aws_cloudwatch_metric_alarm.deployment), values(aws_cloudwatch_metric_alarm.service), [
        aws_cloudwatch_metric_alarm.billing_stands, aws_cloudwatch_metric_alarm.environments_fail, aws_cloudwatch_metric_alarm.host_leaks,
      ]) : alarm.alarm_actions == toset([aws_sns_topic.alarms.arn])
    ])
    error_message = "An alarm is told to nobody."
  }
}

run "a_few_forks_are_no_share" {
  assert {
    condition = [
      for query in aws_cloudwatch_metric_alarm.environments_fail.metric_query : query.expression if query.return_data == true
    ] == ["IF(ended >= 20, share, 0)"]
    error_message = "One fork of one is a share of 1."
  }
}

run "storage_and_connections" {
  assert {
    condition     = aws_cloudwatch_metric_alarm.service["database_storage"].threshold == 10 * 1024 * 1024 * 1024
    error_message = "Not a tenth of 100 GiB, in bytes."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.service["database_connections"].threshold == 518
    error_message = "Not nine tenths of the connections."
  }

  assert {
    condition     = length([for name in keys(aws_cloudwatch_metric_alarm.service) : name if startswith(name, "redis_")]) == 4
    error_message = "Not memory and processor of each node."
  }
}

run "what_is_there_only_if_asked_for" {
  assert {
    condition     = !contains(output.alarms, "promigence-trial-idle_commitment") && !contains(output.alarms, "promigence-trial-unhealthy_api")
    error_message = "An alarm on what nobody named."
  }
}

run "with_a_commitment_and_a_load_balancer" {
  variables {
    idle_commitment_usd_per_hour = 1.5
    load_balancer                = { arn_suffix = "app/pmg/1", target_groups = { api = "targetgroup/api/1", flower = "targetgroup/flower/1" } }
    emails                       = ["ops@example.com"]
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.deployment["idle_commitment"].threshold == 1.5
    error_message = "Idle capacity makes no alarm."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.service["unhealthy_api"].dimensions.TargetGroup == "targetgroup/api/1"
    error_message = "The API is not watched."
  }

  assert {
    condition     = [for subscription in aws_sns_topic_subscription.email : subscription.endpoint] == ["ops@example.com"]
    error_message = "Nobody hears."
  }
}

run "a_number_of_days_that_cloudwatch_has_not" {
  command         = plan
  expect_failures = [var.log_days]

  variables {
    log_days = 31
  }
}
