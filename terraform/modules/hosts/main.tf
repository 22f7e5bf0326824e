# Hosts: an Auto Scaling group that the billing worker moves. Nothing reaches them; they reach the database, the queue
# and AWS, and what their runs may ask for.

data "aws_region" "this" {}

locals {
  name = "promigence-${var.deployment}-host"
  tags = { "promigence:deployment" = var.deployment, "promigence:part" = "host" }
  # On metal there is nothing to nest in.
  nested = !alltrue([for type in var.instance_types : can(regex("\\.metal", type))])

  settings = merge(
    {
      PROMIGENCE_AWS_REGION       = data.aws_region.this.region
      PROMIGENCE_DEPLOYMENT       = var.deployment
      PROMIGENCE_BUNDLES          = "ebs"
      PROMIGENCE_BLOBS            = var.blobs_url
      PROMIGENCE_KMS_KEY          = var.kms_key_arn
      PROMIGENCE_METADATA_URL     = "http://169.254.169.254"
      PROMIGENCE_DISK_RESERVE_GIB = tostring(var.disk_reserve_gib)
      PROMIGENCE_EGRESS_ALLOW     = jsonencode(var.egress_allow)
    },
    var.volume_rate_mib == null ? {} : { PROMIGENCE_VOLUME_RATE_MIB = tostring(var.volume_rate_mib) },
    var.settings,
  )
}

resource "aws_launch_template" "this" {
  name                                 = local.name
  description                          = "A host of Promigence ${var.deployment}."
  image_id                             = var.image_id
  instance_type                        = var.instance_types[0]
  instance_initiated_shutdown_behavior = "terminate"
  ebs_optimized                        = true
  update_default_version               = true
  tags                                 = local.tags

  user_data = base64encode(templatefile("${path.module}/begin.sh.tftpl", {
    settings  = local.settings
    forbidden = var.forbidden_cidrs
  }))

  iam_instance_profile {
    arn = var.profile_arn
  }

  dynamic "cpu_options" {
    for_each = local.nested ? [1] : []

    content {
      nested_virtualization = "enabled"
    }
  }

  # A guest has no network card, and its way out refuses this address; so would the second hop.
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
    instance_metadata_tags      = "disabled"
  }

  network_interfaces {
    associate_public_ip_address = false
    delete_on_termination       = true
    security_groups             = [var.security_group_id]
  }

  # Overlays and caches of live forks; bundles come on volumes of their own.
  block_device_mappings {
    device_name = "/dev/xvda"

    ebs {
      delete_on_termination = true
      encrypted             = true
      kms_key_id            = var.kms_key_arn
      volume_type           = "gp3"
      volume_size           = var.disk_gib
      iops                  = var.disk_iops
      throughput            = var.disk_throughput_mib
    }
  }

  monitoring {
    enabled = true
  }

  dynamic "tag_specifications" {
    for_each = toset(["instance", "network-interface", "volume"])

    content {
      resource_type = tag_specifications.key
      # A volume with the deployment's tag is one of the product's own, and its reaper would look for the row.
      tags = tag_specifications.key == "volume" ? { Name = local.name } : merge(local.tags, { Name = local.name })
    }
  }
}

resource "aws_autoscaling_group" "this" {
  name                      = var.group_name
  min_size                  = var.fleet_min
  max_size                  = var.fleet_max
  vpc_zone_identifier       = var.subnet_ids
  health_check_type         = "EC2"
  health_check_grace_period = 600
  # Who ends is the billing worker's choice: a host that is protected has forks, and no rule of the group knows that.
  protect_from_scale_in     = true
  suspended_processes       = ["AZRebalance"]
  capacity_rebalance        = false
  wait_for_capacity_timeout = "0"
  enabled_metrics           = ["GroupDesiredCapacity", "GroupInServiceInstances", "GroupPendingInstances", "GroupTerminatingInstances"]

  mixed_instances_policy {
    launch_template {
      launch_template_specification {
        launch_template_id = aws_launch_template.this.id
        version            = tostring(aws_launch_template.this.latest_version)
      }

      dynamic "override" {
        for_each = var.instance_types

        content {
          instance_type = override.value
        }
      }
    }

    instances_distribution {
      on_demand_base_capacity                  = var.on_demand_base
      on_demand_percentage_above_base_capacity = 100 - var.spot_percent
      on_demand_allocation_strategy            = "prioritized"
      spot_allocation_strategy                 = "price-capacity-optimized"
    }
  }

  dynamic "tag" {
    for_each = merge(local.tags, { Name = local.name })

    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = true
    }
  }

  lifecycle {
    ignore_changes = [desired_capacity]
  }
}

# An instance that is to end, by whose hand ever, hears it and drains: `promigence-leave` on it ends it when it is empty. Not
# the group's own, which AWS takes at its making only; and `destroy` takes this one first, so that the group waits no longer.
resource "aws_autoscaling_lifecycle_hook" "drain" {
  name                   = "drain"
  autoscaling_group_name = aws_autoscaling_group.this.name
  lifecycle_transition   = "autoscaling:EC2_INSTANCE_TERMINATING"
  heartbeat_timeout      = var.drain_seconds
  default_result         = "CONTINUE"
}
