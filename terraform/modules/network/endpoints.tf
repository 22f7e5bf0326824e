# Through the endpoints go requests of this account's identities only; S3 moreover only to this account's buckets. Whoever has taken
# a host over cannot send what is on it to an account of his own through them.

resource "aws_vpc_endpoint" "s3" {
  vpc_id            = aws_vpc.this.id
  service_name      = "com.amazonaws.${local.region}.s3"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = [for table in aws_route_table.private : table.id]

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "OwnBucketsByOwnIdentities"
      Effect    = "Allow"
      Principal = "*"
      Action    = "s3:*"
      Resource  = "*"
      Condition = {
        StringEquals = {
          "aws:PrincipalAccount" = local.account
          "aws:ResourceAccount"  = local.account
        }
      }
    }]
  })

  tags = merge(local.tags, { Name = "${local.name}-s3" })
}

resource "aws_vpc_endpoint" "interface" {
  for_each = local.interface_services

  vpc_id              = aws_vpc.this.id
  service_name        = "com.amazonaws.${local.region}.${each.key}"
  vpc_endpoint_type   = "Interface"
  private_dns_enabled = true
  security_group_ids  = [aws_security_group.endpoints.id]
  subnet_ids          = [for zone in local.endpoint_zones : aws_subnet.private[zone].id]

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "OwnIdentities"
      Effect    = "Allow"
      Principal = "*"
      Action    = "*"
      Resource  = "*"
      Condition = { StringEquals = { "aws:PrincipalAccount" = local.account } }
    }]
  })

  tags = merge(local.tags, { Name = "${local.name}-${each.key}" })
}
