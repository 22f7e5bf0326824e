output "address" {
  description = "Host name of the first node; the same after another has taken over."
  value       = aws_elasticache_replication_group.this.primary_endpoint_address
}

output "port" {
  description = "Its port, TLS only."
  value       = local.port
}

output "username" {
  description = "Login of the control plane."
  value       = aws_elasticache_user.control.user_name
}

output "flower_username" {
  description = "Login of Flower, which puts nothing into a queue and takes nothing out."
  value       = aws_elasticache_user.flower.user_name
}

output "user_group_id" {
  description = "The group that the billing worker puts users of hosts into."
  value       = aws_elasticache_user_group.this.user_group_id
}

output "node_ids" {
  description = "For alarms: each node is watched by itself."
  value       = [for number in range(1 + var.replicas) : format("%s-%03d", local.name, number + 1)]
}
