output "group_name" {
  description = "Name of the Auto Scaling group."
  value       = aws_autoscaling_group.this.name
}

output "launch_template_id" {
  description = "What hosts start from."
  value       = aws_launch_template.this.id
}
