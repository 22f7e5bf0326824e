output "load_balancer_dns_name" {
  description = "What your names of the API and of Flower lead to."
  value       = aws_lb.this.dns_name
}

output "load_balancer_zone_id" {
  description = "For alias records."
  value       = aws_lb.this.zone_id
}

output "load_balancer_arn_suffix" {
  description = "For metrics of the load balancer."
  value       = aws_lb.this.arn_suffix
}

output "target_group_arn_suffixes" {
  description = "For metrics of the parts behind it: api, flower."
  value       = { for part, group in aws_lb_target_group.this : part => group.arn_suffix }
}

output "group_name" {
  description = "The Auto Scaling group of the control plane."
  value       = aws_autoscaling_group.this.name
}
