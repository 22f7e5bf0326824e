# Private subnets for all that runs, endpoints to the AWS services that it needs, and no way to the internet unless asked for.

data "aws_region" "this" {}

data "aws_caller_identity" "this" {}

locals {
  region  = data.aws_region.this.region
  account = data.aws_caller_identity.this.account_id
  tags    = { "promigence:deployment" = var.deployment }
  name    = "promigence-${var.deployment}"
  bits    = tonumber(split("/", var.cidr)[1])

  # Of sixteen equal parts of the network, one a zone; public subnets are small, in the last part.
  private_cidrs = { for index, zone in var.zones : zone => cidrsubnet(var.cidr, 4, index) }
  public_cidrs  = { for index, zone in var.zones : zone => cidrsubnet(cidrsubnet(var.cidr, 4, 15), 4, index) }
  public        = var.internet_facing || var.nat

  # Without a way to the internet, these are all that instances reach of AWS; ssmmessages is for an operator's session.
  interface_services = toset([
    "autoscaling", "ec2", "elasticache", "kms", "logs", "secretsmanager", "ssm", "ssmmessages", "sts",
  ])
  endpoint_zones = slice(var.zones, 0, min(var.endpoint_zones, length(var.zones)))
}

resource "aws_vpc" "this" {
  cidr_block           = var.cidr
  enable_dns_support   = true
  enable_dns_hostnames = true

  tags = merge(local.tags, { Name = local.name })
}

# Whoever forgets to name a security group gets one that lets nothing through.
resource "aws_default_security_group" "nothing" {
  vpc_id = aws_vpc.this.id
  tags   = merge(local.tags, { Name = "${local.name}-nothing" })
}

resource "aws_subnet" "private" {
  for_each = local.private_cidrs

  vpc_id            = aws_vpc.this.id
  availability_zone = each.key
  cidr_block        = each.value

  tags = merge(local.tags, { Name = "${local.name}-private-${each.key}" })
}

resource "aws_route_table" "private" {
  for_each = local.private_cidrs

  vpc_id = aws_vpc.this.id
  tags   = merge(local.tags, { Name = "${local.name}-private-${each.key}" })
}

resource "aws_route_table_association" "private" {
  for_each = local.private_cidrs

  subnet_id      = aws_subnet.private[each.key].id
  route_table_id = aws_route_table.private[each.key].id
}

resource "aws_subnet" "public" {
  for_each = local.public ? local.public_cidrs : {}

  vpc_id                  = aws_vpc.this.id
  availability_zone       = each.key
  cidr_block              = each.value
  map_public_ip_on_launch = false

  tags = merge(local.tags, { Name = "${local.name}-public-${each.key}" })
}

resource "aws_internet_gateway" "this" {
  count = local.public ? 1 : 0

  vpc_id = aws_vpc.this.id
  tags   = merge(local.tags, { Name = local.name })
}

resource "aws_route_table" "public" {
  count = local.public ? 1 : 0

  vpc_id = aws_vpc.this.id
  tags   = merge(local.tags, { Name = "${local.name}-public" })
}

resource "aws_route" "internet" {
  count = local.public ? 1 : 0

  route_table_id         = aws_route_table.public[0].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.this[0].id
}

resource "aws_route_table_association" "public" {
  for_each = local.public ? local.public_cidrs : {}

  subnet_id      = aws_subnet.public[each.key].id
  route_table_id = aws_route_table.public[0].id
}

resource "aws_eip" "nat" {
  count = var.nat ? 1 : 0

  domain = "vpc"
  tags   = merge(local.tags, { Name = "${local.name}-nat" })
}

resource "aws_nat_gateway" "this" {
  count = var.nat ? 1 : 0

  # It has no way out before the gateway is there.
  depends_on = [aws_route.internet]

  allocation_id = aws_eip.nat[0].id
  subnet_id     = aws_subnet.public[var.zones[0]].id
  tags          = merge(local.tags, { Name = local.name })
}

resource "aws_route" "nat" {
  for_each = var.nat ? local.private_cidrs : {}

  route_table_id         = aws_route_table.private[each.key].id
  destination_cidr_block = "0.0.0.0/0"
  nat_gateway_id         = aws_nat_gateway.this[0].id
}
