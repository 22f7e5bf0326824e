variable "deployment" {
  description = "Name of the deployment; every name and tag has it."
  type        = string

  validation {
    condition     = can(regex("^[a-z](-?[a-z0-9])+$", var.deployment)) && length(var.deployment) <= 24
    error_message = "A deployment's name is 2 to 24 lower-case letters, digits and single dashes between them, and begins with a letter."
  }
}

variable "kms_key_arn" {
  description = "Key that everything in the bucket is encrypted with."
  type        = string

  validation {
    condition     = can(regex("^arn:[a-z-]+:kms:", var.kms_key_arn))
    error_message = "The ARN of a KMS key, not its id or alias."
  }
}

variable "old_version_days" {
  description = "Days for which a version that was written over or deleted can be had back: as long as the database's backups reach, or a restored one names files that are gone."
  type        = number
  default     = 1

  validation {
    condition     = var.old_version_days >= 1 && floor(var.old_version_days) == var.old_version_days
    error_message = "Whole days, at least one."
  }
}

variable "deletable" {
  description = "Whether `terraform destroy` may delete the bucket with files in it."
  type        = bool
  default     = false
}
