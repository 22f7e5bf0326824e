# The control plane: API, billing worker and Flower on a few alike instances behind one load balancer. None of them holds
# anything, so an instance may go at any time; two billing workers at once are harmless.

data "aws_region" "this" {}

data "aws_vpc" "this" {
  id = var.vpc_id
}

locals {
  name = "promigence-${var.deployment}-control"
  tags = { "promigence:deployment" = var.deployment, "promigence:part" = "control" }

  settings = merge(
    {
      PROMIGENCE_AWS_REGION       = data.aws_region.this.region
      PROMIGENCE_DEPLOYMENT       = var.deployment
      PROMIGENCE_BUNDLES          = "ebs"
      PROMIGENCE_BLOBS            = var.blobs_url
      PROMIGENCE_KMS_KEY          = var.kms_key_arn
      PROMIGENCE_METADATA_URL     = "http://169.254.169.254"
      PROMIGENCE_REDIS_USER_GROUP = var.redis_user_group
      PROMIGENCE_SECRETS_KMS_KEY  = var.kms_key_arn
      PROMIGENCE_FLEET            = var.fleet
      PROMIGENCE_FLEET_MIN        = tostring(var.fleet_min)
      PROMIGENCE_FLEET_MAX        = tostring(var.fleet_max)
      PROMIGENCE_PLACEMENT        = var.placement
      PROMIGENCE_EGRESS_ALLOW     = jsonencode(var.egress_allow)
      PROMIGENCE_API_HOST         = "0.0.0.0"
      PROMIGENCE_API_PORT         = tostring(var.api_port)
      # Who calls is what the load balancer says; nobody else reaches the port.
      PROMIGENCE_TRUSTED_PROXIES = jsonencode([data.aws_vpc.this.cidr_block])
      PROMIGENCE_FLOWER_HOST     = "0.0.0.0"
      PROMIGENCE_FLOWER_PORT     = tostring(var.flower_port)
    },
    var.settings,
  )

  # What each part is reached by, and how it says that it is there. The API's `/readyz` is no reason to replace an instance:
  # it answers 503 where there is no host, as in an idle fleet, and while the database moves to its standby, which no new
  # instance mends. A part serves only once it has its secrets and the database.
  parts = {
    api    = { port = var.api_port, health = "/healthz" }
    flower = { port = var.flower_port, health = "/healthcheck" }
  }
}

resource "aws_launch_template" "this" {
  name                                 = local.name
  description                          = "API, billing worker and Flower of Promigence ${var.deployment}."
  image_id                             = var.image_id
  instance_type                        = var.instance_type
  instance_initiated_shutdown_behavior = "terminate"
  ebs_optimized                        = true
  update_default_version               = true
  tags                                 = local.tags

  user_data = base64encode(templatefile("${path.module}/begin.sh.tftpl", {
    settings  = local.settings
    forbidden = []
  }))

  iam_instance_profile {
    arn = var.profile_arn
  }

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

  block_device_mappings {
    device_name = "/dev/xvda"

    ebs {
      delete_on_termination = true
      encrypted             = true
      kms_key_id            = var.kms_key_arn
      volume_type           = "gp3"
      volume_size           = 24
    }
  }

  dynamic "tag_specifications" {
    for_each = toset(["instance", "network-interface", "volume"])

    content {
      resource_type = tag_specifications.key
      # A volume with the deployment's tag is one of the product's own, and its reaper would look for the row.
      tags = tag_specifications.key == "volume" ? { Name = local.name } : merge(local.tags, {
        Name = local.name
        # Instances read their secret as they start.
        "promigence:credentials" = tostring(var.credentials_version)
      })
    }
  }
}

resource "aws_autoscaling_group" "this" {
  name                      = local.name
  min_size                  = var.instances
  max_size                  = var.instances + 1
  desired_capacity          = var.instances
  vpc_zone_identifier       = var.subnet_ids
  target_group_arns         = [for part in aws_lb_target_group.this : part.arn]
  health_check_type         = "ELB"
  health_check_grace_period = 600
  default_instance_warmup   = 60
  wait_for_capacity_timeout = "0"
  enabled_metrics           = ["GroupInServiceInstances"]

  launch_template {
    id      = aws_launch_template.this.id
    version = tostring(aws_launch_template.this.latest_version)
  }

  # A new image or setting replaces the instances one after another; the first of them migrates the database.
  instance_refresh {
    strategy = "Rolling"

    preferences {
      min_healthy_percentage = 100
      max_healthy_percentage = 200
      instance_warmup        = "60"
      auto_rollback          = true
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
}

resource "aws_lb" "this" {
  name                       = "pmg-${var.deployment}"
  load_balancer_type         = "application"
  internal                   = !var.internet_facing
  subnets                    = var.load_balancer_subnet_ids
  security_groups            = [var.load_balancer_security_group_id]
  drop_invalid_header_fields = true
  enable_deletion_protection = var.deletion_protection
  # A long poll of the API lasts 25 s, a stream of events says something every few. Less than the API keeps a connection
  # (75 s): one that it closes as a request comes is a 502.
  idle_timeout = 60
  tags         = local.tags
}

resource "aws_lb_target_group" "this" {
  for_each = local.parts

  # 32 characters at most, of which a deployment's name may have 24.
  name                 = "pmg-${var.deployment}-${substr(each.key, 0, 3)}"
  port                 = each.value.port
  protocol             = "HTTP"
  vpc_id               = var.vpc_id
  deregistration_delay = "30"
  tags                 = local.tags

  health_check {
    path                = each.value.health
    matcher             = "200"
    interval            = 10
    timeout             = 5
    healthy_threshold   = 2
    unhealthy_threshold = 3
  }

  # What a Flower has seen, only this one shows.
  stickiness {
    enabled = each.key == "flower"
    type    = "lb_cookie"
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_lb_listener" "this" {
  load_balancer_arn = aws_lb.this.arn
  port              = 443
  protocol          = "HTTPS"
  ssl_policy        = "ELBSecurityPolicy-TLS13-1-2-2021-06"
  certificate_arn   = var.certificate_arn
  tags              = local.tags

  routing_http_response_server_enabled                         = false
  routing_http_response_strict_transport_security_header_value = "max-age=31536000"
  routing_http_response_x_content_type_options_header_value    = "nosniff"

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.this["api"].arn
  }
}

# Flower asks for its own password; the load balancer only knows its name.
resource "aws_lb_listener_rule" "flower" {
  listener_arn = aws_lb_listener.this.arn
  priority     = 10
  tags         = local.tags

  action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.this["flower"].arn
  }

  condition {
    host_header {
      values = [var.flower_host]
    }
  }
}

# What instances measure, they tell to who asks them with the token from inside; from outside there is no such page.
resource "aws_lb_listener_rule" "metrics" {
  listener_arn = aws_lb_listener.this.arn
  priority     = 1
  tags         = local.tags

  action {
    type = "fixed-response"

    fixed_response {
      content_type = "text/plain"
      message_body = "not found"
      status_code  = "404"
    }
  }

  condition {
    path_pattern {
      values = ["/metrics", "/metrics/*"]
    }
  }
}
