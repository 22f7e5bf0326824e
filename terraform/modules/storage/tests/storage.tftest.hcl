mock_provider "aws" {
  mock_resource "aws_s3_bucket" {
    defaults = {
      id  = "promigence-trial-1"
      arn = "arn:aws:s3:::promigence-trial-1"
    }
  }
}

variables {
  deployment  = "trial"
  kms_key_arn = "arn:aws:kms:us-east-1:111122223333:key/00000000-0000-0000-0000-000000000000"
}

run "private_and_encrypted" {
  assert {
    condition = alltrue([
      aws_s3_bucket_public_access_block.this.block_public_acls,
      aws_s3_bucket_public_access_block.this.block_public_policy,
      aws_s3_bucket_public_access_block.this.ignore_public_acls,
      aws_s3_bucket_public_access_block.this.restrict_public_buckets,
    ])
    error_message = "The bucket can be made public."
  }

  assert {
    condition = one([
      for rule in aws_s3_bucket_server_side_encryption_configuration.this.rule :
      one(rule.apply_server_side_encryption_by_default).kms_master_key_id
    ]) == var.kms_key_arn
    error_message = "What is written is not encrypted with the deployment's key."
  }

  assert {
    condition = anytrue([
      for statement in jsondecode(aws_s3_bucket_policy.this.policy).Statement :
      statement.Effect == "Deny" && statement.Action == "s3:*" && try(statement.Condition.Bool["aws:SecureTransport"] == "false", false)
    ])
    error_message = "The bucket can be read without TLS."
  }

  assert {
    condition     = !aws_s3_bucket.this.force_destroy
    error_message = "Files are deleted with the bucket though nobody asked for it."
  }
}

run "old_versions_expire" {
  assert {
    condition     = aws_s3_bucket_versioning.this.versioning_configuration[0].status == "Enabled"
    error_message = "A file that is overwritten is lost."
  }

  assert {
    condition = one(flatten([
      for rule in aws_s3_bucket_lifecycle_configuration.this.rule :
      [for expiration in rule.noncurrent_version_expiration : expiration.noncurrent_days]
    ])) == 1
    error_message = "Old versions stay for more than a day."
  }
}

run "a_setting_for_the_server" {
  assert {
    condition     = output.blobs_url == "s3://promigence-trial-1/blobs"
    error_message = "The server does not take ${output.blobs_url}."
  }
}

run "a_key_by_its_alias_is_refused" {
  command         = plan
  expect_failures = [var.kms_key_arn]

  variables {
    kms_key_arn = "alias/promigence"
  }
}
