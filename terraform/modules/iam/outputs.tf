output "host_profile" {
  description = "Name of the instance profile of hosts."
  value       = aws_iam_instance_profile.host.name
}

output "host_profile_arn" {
  description = "ARN of the instance profile of hosts."
  value       = aws_iam_instance_profile.host.arn
}

output "host_role_arn" {
  description = "ARN of the role of hosts."
  value       = aws_iam_role.host.arn
}

output "control_profile_arn" {
  description = "ARN of the instance profile of the control plane."
  value       = aws_iam_instance_profile.control.arn
}

output "control_role_arn" {
  description = "ARN of the role of the control plane."
  value       = aws_iam_role.control.arn
}

output "builder_profile" {
  description = "Name of the instance profile of the machine on which an image is made."
  value       = aws_iam_instance_profile.builder.name
}
