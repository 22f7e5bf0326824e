# Who reaches whom, and nowhere else is anything said about it. What is not listed is closed, in both directions.

locals {
  # from -> to, and the port there. Names are those of the security groups below.
  links = {
    load_balancer_api    = { from = "load_balancer", to = "control", port = var.api_port }
    load_balancer_flower = { from = "load_balancer", to = "control", port = var.flower_port }
    control_database     = { from = "control", to = "database", port = 5432 }
    control_redis        = { from = "control", to = "redis", port = 6379 }
    control_endpoints    = { from = "control", to = "endpoints", port = 443 }
    host_database        = { from = "host", to = "database", port = 5432 }
    host_redis           = { from = "host", to = "redis", port = 6379 }
    host_endpoints       = { from = "host", to = "endpoints", port = 443 }
  }
  groups = {
    load_balancer = aws_security_group.load_balancer.id
    control       = aws_security_group.control.id
    host          = aws_security_group.host.id
    database      = aws_security_group.database.id
    redis         = aws_security_group.redis.id
    endpoints     = aws_security_group.endpoints.id
  }
  instances = toset(["control", "host"])
}

resource "aws_security_group" "load_balancer" {
  name_prefix = "${local.name}-load-balancer-"
  description = "The load balancer: from clients to the control plane"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${local.name}-load-balancer" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_security_group" "control" {
  name_prefix = "${local.name}-control-"
  description = "Control instances: API, billing worker, Flower"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${local.name}-control" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_security_group" "host" {
  name_prefix = "${local.name}-host-"
  description = "Hosts: nobody opens a connection to them"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${local.name}-host" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_security_group" "database" {
  name_prefix = "${local.name}-database-"
  description = "PostgreSQL: opens no connection itself"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${local.name}-database" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_security_group" "redis" {
  name_prefix = "${local.name}-redis-"
  description = "Redis: opens no connection itself"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${local.name}-redis" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_security_group" "endpoints" {
  name_prefix = "${local.name}-endpoints-"
  description = "Endpoints of AWS services"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${local.name}-endpoints" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each = toset(var.client_cidrs)

  security_group_id = aws_security_group.load_balancer.id
  description       = "HTTPS from ${each.key}"
  cidr_ipv4         = each.key
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "link" {
  for_each = local.links

  security_group_id            = local.groups[each.value.from]
  description                  = "To ${each.value.to}"
  referenced_security_group_id = local.groups[each.value.to]
  ip_protocol                  = "tcp"
  from_port                    = each.value.port
  to_port                      = each.value.port
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "link" {
  for_each = local.links

  security_group_id            = local.groups[each.value.to]
  description                  = "From ${each.value.from}"
  referenced_security_group_id = local.groups[each.value.from]
  ip_protocol                  = "tcp"
  from_port                    = each.value.port
  to_port                      = each.value.port
  tags                         = local.tags
}

resource "aws_vpc_security_group_egress_rule" "s3" {
  for_each = local.instances

  security_group_id = local.groups[each.key]
  description       = "To S3 through its endpoint"
  prefix_list_id    = aws_vpc_endpoint.s3.prefix_list_id
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "runs" {
  for_each = { for each in var.host_egress : "${each.cidr}:${each.from_port}-${each.to_port}" => each }

  security_group_id = aws_security_group.host.id
  description       = each.value.description
  cidr_ipv4         = each.value.cidr
  ip_protocol       = "tcp"
  from_port         = each.value.from_port
  to_port           = each.value.to_port
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "internet" {
  for_each = var.nat ? local.instances : []

  security_group_id = local.groups[each.key]
  description       = "HTTPS to the internet, through the NAT gateway"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  tags              = local.tags
}
