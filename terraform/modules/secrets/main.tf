# The deployment's key, and what its control plane logs in with. Values are drawn by AWS and written without passing through a state
# or a plan: each is drawn once, kept in a secret, and read back from there by whatever needs it, so that an apply that breaks off
# between two of them is finished by the next with the same values.

data "aws_region" "this" {}

data "aws_caller_identity" "this" {}

data "aws_partition" "this" {}

locals {
  tags     = { "promigence:deployment" = var.deployment }
  prefix   = "promigence/${var.deployment}"
  region   = data.aws_region.this.region
  account  = data.aws_caller_identity.this.account_id
  recovery = var.deletable ? 0 : 30

  # A number that changes when anything does that the control secret is made of, and says nothing of it.
  control_version = parseint(substr(sha256(jsonencode([
    var.passwords_version, var.key_version, var.keep_previous_key, var.database, var.redis, var.database_ca_file,
  ])), 0, 7), 16)
}

resource "aws_kms_key" "this" {
  description             = "Promigence ${var.deployment}: volumes, snapshots, files, rows, secrets, logs"
  enable_key_rotation     = true
  deletion_window_in_days = var.deletable ? 7 : 30
  tags                    = local.tags

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "WhomTheAccountAllows"
        Effect    = "Allow"
        Principal = { AWS = "arn:${data.aws_partition.this.partition}:iam::${local.account}:root" }
        Action    = "kms:*"
        Resource  = "*"
      },
      {
        Sid       = "LogsOfThisAccount"
        Effect    = "Allow"
        Principal = { Service = "logs.${local.region}.amazonaws.com" }
        Action    = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
        Resource  = "*"
        Condition = {
          ArnLike = {
            "kms:EncryptionContext:aws:logs:arn" = "arn:${data.aws_partition.this.partition}:logs:${local.region}:${local.account}:log-group:*"
          }
        }
      },
      {
        Sid       = "AlarmsOfThisAccount"
        Effect    = "Allow"
        Principal = { Service = "cloudwatch.amazonaws.com" }
        Action    = ["kms:Decrypt", "kms:GenerateDataKey*"]
        Resource  = "*"
        Condition = { StringEquals = { "aws:SourceAccount" = local.account } }
      },
    ]
  })
}

resource "aws_kms_alias" "this" {
  name          = "alias/promigence-${var.deployment}"
  target_key_id = aws_kms_key.this.key_id
}
