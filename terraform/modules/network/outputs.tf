output "vpc_id" {
  description = "The network."
  value       = aws_vpc.this.id
}

output "zones" {
  description = "Its zones, in the order in which they were given; subnets come in the same."
  value       = var.zones
}

output "private_subnet_ids" {
  description = "One in each zone: instances, database, Redis, and a load balancer that is not reached from the internet."
  value       = [for zone in var.zones : aws_subnet.private[zone].id]
}

output "public_subnet_ids" {
  description = "One in each zone, for a load balancer that is reached from the internet; none unless `internet_facing` or `nat`."
  value       = [for zone in var.zones : aws_subnet.public[zone].id if local.public]
}

output "security_group_ids" {
  description = "Of each role: load_balancer, control, host, database, redis, endpoints. Their rules are this module's alone."
  value       = local.groups
}

output "private_route_table_ids" {
  description = "One in each zone: routes to your own networks go there."
  value       = [for zone in var.zones : aws_route_table.private[zone].id]
}
