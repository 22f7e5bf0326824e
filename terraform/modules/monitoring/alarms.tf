locals {
  # Of the deployment's own metrics: above `threshold` in each of `periods` of `seconds`. Two billing workers say the same twice, so
  # never a sum.
  deployment_alarms = merge(
    {
      forks_wait = {
        metric = "queue_age_seconds", threshold = var.queue_age_seconds, periods = 3, seconds = 60
        says   = "Forks wait for a host: none can be had, or none takes them. `promigence-server explain FORK` says which."
      }
      commands_wait = {
        metric = "exec_age_seconds", threshold = 30, periods = 3, seconds = 60
        says   = "A worker holds machines and takes no command."
      }
      late_kills = {
        metric = "late_kills", threshold = 0, periods = 1, seconds = 60
        says   = "A machine outlived its lease by more than a second. It is charged up to the lease."
      }
      leaks = {
        metric = "leaks", threshold = 0, periods = 1, seconds = 60
        says   = "Something was left that nobody owns. `promigence-server doctor` names it."
      }
      leaks_cost = {
        metric = "leaks_usd_per_month", threshold = 0, periods = 6, seconds = 300
        says   = "Volumes or snapshots that nobody owns could not be deleted for half an hour, and are paid for."
      }
      hosts_in_quarantine = {
        metric = "quarantined_hosts", threshold = 0, periods = 3, seconds = 300
        says   = "A host broke several forks in a row and is out. `promigence-server hosts` says why."
      }
      hopeless_forks = {
        metric = "hopeless_forks", threshold = 0, periods = 3, seconds = 300
        says   = "Forks wait that no host could take, were it empty: a key that nobody restores, or a shape larger than a host."
      }
      silent_instances = {
        metric = "silent_instances", threshold = 0, periods = 3, seconds = 300
        says   = "Instances that started long ago and never registered: the image, their credentials, or the network."
      }
    },
    var.idle_commitment_usd_per_hour == null ? {} : {
      idle_commitment = {
        metric = "idle_commitment_usd_per_hour", threshold = var.idle_commitment_usd_per_hour, periods = 6, seconds = 3600
        says   = "Of the capacity that was bought ahead more lies idle than was to be."
      }
    },
  )

  # Of AWS's own metrics: namespace, dimensions and in which direction it is bad.
  service_alarms = merge(
    {
      database_storage = {
        namespace  = "AWS/RDS", metric = "FreeStorageSpace", statistic = "Minimum", dimensions = { DBInstanceIdentifier = var.database.identifier }
        comparison = "LessThanThreshold", threshold = var.database.storage_gib * pow(1024, 3) * 0.1
        says       = "The database has less than a tenth of its first storage left, though it grows by itself."
      }
      database_processor = {
        namespace  = "AWS/RDS", metric = "CPUUtilization", statistic = "Average", dimensions = { DBInstanceIdentifier = var.database.identifier }
        comparison = "GreaterThanThreshold", threshold = 80
        says       = "The database works at its limit: a larger class."
      }
      database_connections = {
        namespace  = "AWS/RDS", metric = "DatabaseConnections", statistic = "Maximum", dimensions = { DBInstanceIdentifier = var.database.identifier }
        comparison = "GreaterThanThreshold", threshold = floor(var.database.connections * 0.9)
        says       = "Soon the database takes no more connections: more hosts than it was made for."
      }
    },
    { for id in var.redis_node_ids : "redis_memory_${id}" => {
      namespace  = "AWS/ElastiCache", metric = "DatabaseMemoryUsagePercentage", statistic = "Maximum", dimensions = { CacheClusterId = id }
      comparison = "GreaterThanThreshold", threshold = 80
      says       = "Redis fills, and refuses bells when it is full: nobody reads a queue, or a larger node."
    } },
    { for id in var.redis_node_ids : "redis_processor_${id}" => {
      namespace  = "AWS/ElastiCache", metric = "EngineCPUUtilization", statistic = "Average", dimensions = { CacheClusterId = id }
      comparison = "GreaterThanThreshold", threshold = 80
      says       = "Redis works at its limit: a larger node."
    } },
    # Not `try`: of a suffix that AWS has yet to tell it would make a map whose keys nobody knows.
    { for part, suffix in var.load_balancer == null ? tomap({}) : var.load_balancer.target_groups : "unhealthy_${part}" => {
      namespace  = "AWS/ApplicationELB", metric = "UnHealthyHostCount", statistic = "Maximum"
      dimensions = { LoadBalancer = var.load_balancer.arn_suffix, TargetGroup = suffix }
      comparison = "GreaterThanThreshold", threshold = 0
      says       = "A control instance does not answer for ${part}."
    } },
  )
}

resource "aws_cloudwatch_metric_alarm" "deployment" {
  for_each = local.deployment_alarms

  alarm_name          = "${local.name}-${each.key}"
  alarm_description   = each.value.says
  namespace           = local.namespace
  metric_name         = aws_cloudwatch_log_metric_filter.health[each.value.metric].metric_transformation[0].name
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.threshold
  period              = each.value.seconds
  evaluation_periods  = each.value.periods
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
  tags                = local.tags
}

# Without a tick no lease is extended and nothing is recovered; forks end on the leases that they have. The line that would say so may
# be missing as well.
resource "aws_cloudwatch_metric_alarm" "billing_stands" {
  alarm_name          = "${local.name}-billing_stands"
  alarm_description   = "The billing worker does not tick, or is not there: forks end `not_renewed`, none too late."
  namespace           = local.namespace
  metric_name         = aws_cloudwatch_log_metric_filter.health["tick_age_seconds"].metric_transformation[0].name
  statistic           = "Minimum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 60
  period              = 60
  evaluation_periods  = 3
  # Before there are control instances there is nothing to be missed.
  treat_missing_data = var.load_balancer == null ? "notBreaching" : "breaching"
  alarm_actions      = [aws_sns_topic.alarms.arn]
  ok_actions         = [aws_sns_topic.alarms.arn]
  tags               = local.tags
}

resource "aws_cloudwatch_metric_alarm" "environments_fail" {
  alarm_name          = "${local.name}-environments_fail"
  alarm_description   = "Too many forks teach nothing, for their environment failed: the report's `environment_failures` say of what."
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.env_failed_share
  evaluation_periods  = 3
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
  tags                = local.tags

  metric_query {
    id          = "enough"
    expression  = "IF(ended >= ${var.env_failed_of}, share, 0)"
    label       = "share of forks that their environment failed"
    return_data = true
  }

  metric_query {
    id = "share"

    metric {
      namespace   = local.namespace
      metric_name = aws_cloudwatch_log_metric_filter.health["env_failed_share"].metric_transformation[0].name
      stat        = "Maximum"
      period      = 60
    }
  }

  metric_query {
    id = "ended"

    metric {
      namespace   = local.namespace
      metric_name = aws_cloudwatch_log_metric_filter.health["ended_forks"].metric_transformation[0].name
      stat        = "Maximum"
      period      = 60
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "host_leaks" {
  alarm_name          = "${local.name}-host_leaks"
  alarm_description   = "A host found something of a machine that nobody owns; its log says what."
  namespace           = local.namespace
  metric_name         = aws_cloudwatch_log_metric_filter.host_leaks.metric_transformation[0].name
  statistic           = "Sum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  period              = 3600
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
  tags                = local.tags
}

resource "aws_cloudwatch_metric_alarm" "service" {
  for_each = local.service_alarms

  alarm_name          = "${local.name}-${each.key}"
  alarm_description   = each.value.says
  namespace           = each.value.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.dimensions
  statistic           = each.value.statistic
  comparison_operator = each.value.comparison
  threshold           = each.value.threshold
  period              = 300
  evaluation_periods  = 3
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
  tags                = local.tags
}
