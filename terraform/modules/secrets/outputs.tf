output "kms_key_arn" {
  description = "The deployment's key, for all that is at rest."
  value       = aws_kms_key.this.arn
}

output "control_secret_name" {
  description = "What control instances fetch: JSON of database_url, redis_url, flower_redis_url, key_secret, flower_password, metrics_token."
  value       = aws_secretsmanager_secret.control.name
}

output "control_secret_arn" {
  description = "For the policy of who may fetch it."
  value       = aws_secretsmanager_secret.control.arn
}

output "control_version" {
  description = "Changes with the control secret, and is there once that is written: control instances of another version are replaced."
  value       = local.control_version
  depends_on  = [aws_secretsmanager_secret_version.control]
}

output "passwords_version" {
  description = "Which passwords these are; the stores take new ones when it changes."
  value       = var.passwords_version
}

output "passwords_secret_id" {
  description = "The secret that the stores are given their passwords from; known once it has a value."
  value       = aws_secretsmanager_secret_version.passwords.secret_id
}
