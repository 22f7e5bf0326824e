variable "deployment" {
  description = "Name of the deployment: the tag that volumes, snapshots and instances have, and part of every name."
  type        = string

  validation {
    condition     = can(regex("^[a-z](-?[a-z0-9])+$", var.deployment)) && length(var.deployment) <= 24
    error_message = "A deployment's name is 2 to 24 lower-case letters, digits and single dashes between them, and begins with a letter."
  }
}

variable "kms_key_arn" {
  description = "Key of volumes, snapshots, files and secrets."
  type        = string

  validation {
    condition     = can(regex("^arn:[a-z-]+:kms:", var.kms_key_arn))
    error_message = "The ARN of a KMS key, not its id or alias."
  }
}

variable "bucket_arn" {
  description = "The deployment's bucket."
  type        = string

  validation {
    condition     = can(regex("^arn:[a-z-]+:s3:::[a-z0-9.-]+$", var.bucket_arn))
    error_message = "The ARN of a bucket."
  }
}

variable "blobs_prefix" {
  description = "Below it the bucket has files and outputs."
  type        = string
  default     = "blobs"
}

variable "releases_prefix" {
  description = "Below it the bucket has releases of the server."
  type        = string
  default     = "releases"
}

variable "group_name" {
  description = "Name of the Auto Scaling group of hosts, the one that the billing worker moves."
  type        = string
}

variable "permissions_boundary" {
  description = "ARN of a policy that limits all roles made here, where the account wants one."
  type        = string
  default     = null
}
