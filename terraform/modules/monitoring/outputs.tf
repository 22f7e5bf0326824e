output "topic_arn" {
  description = "What alarms are told to."
  value       = aws_sns_topic.alarms.arn
}

output "log_groups" {
  description = "Names of the log groups, by part: api, billing, credentials, flower, leave, worker."
  value       = { for part, group in aws_cloudwatch_log_group.part : part => group.name }
}

output "namespace" {
  description = "Where the metrics of the deployment are."
  value       = local.namespace
}

output "alarms" {
  description = "Names of all alarms."
  value = sort(concat(
    [for alarm in aws_cloudwatch_metric_alarm.deployment : alarm.alarm_name],
    [for alarm in aws_cloudwatch_metric_alarm.service : alarm.alarm_name],
    [
      aws_cloudwatch_metric_alarm.billing_stands.alarm_name,
      aws_cloudwatch_metric_alarm.environments_fail.alarm_name,
      aws_cloudwatch_metric_alarm.host_leaks.alarm_name,
    ],
  ))
}
