terraform {
  required_providers {
    aws = {
      source = "hashicorp/aws"
    }
  }
}

resource "aws_secretsmanager_secret_version" "passwords" {
  secret_id                = "passwords"
  secret_string_wo_version = 1
  secret_string_wo         = jsonencode({ database = "a-password", redis = "another", redis_flower = "a-third", redis_default = "a-fourth" })
}
