output "address" {
  description = "Its host name; the same after the standby has taken over."
  value       = aws_db_instance.this.address
}

output "port" {
  description = "Its port."
  value       = local.port
}

output "name" {
  description = "The database on it."
  value       = aws_db_instance.this.db_name
}

output "username" {
  description = "The owner of the tables, as which the control plane logs in and makes a login for each host."
  value       = aws_db_instance.this.username
}

output "identifier" {
  description = "For alarms, and for restoring it."
  value       = aws_db_instance.this.identifier
}

output "storage_gib" {
  description = "Storage at first, of which alarms take their part."
  value       = var.storage_gib
}

output "connections" {
  description = "Most connections at once."
  value       = local.connections
}
