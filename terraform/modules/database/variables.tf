variable "deployment" {
  description = "Name of the deployment; every name and tag has it."
  type        = string

  validation {
    condition     = can(regex("^[a-z](-?[a-z0-9])+$", var.deployment)) && length(var.deployment) <= 24
    error_message = "A deployment's name is 2 to 24 lower-case letters, digits and single dashes between them, and begins with a letter."
  }
}

variable "kms_key_arn" {
  description = "Key that storage, backups and logs are encrypted with."
  type        = string

  validation {
    condition     = can(regex("^arn:[a-z-]+:kms:", var.kms_key_arn))
    error_message = "The ARN of a KMS key, not its id or alias."
  }
}

variable "subnet_ids" {
  description = "Private subnets in at least two zones."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) >= 2
    error_message = "Subnets in at least two zones: a standby is in another zone."
  }
}

variable "security_group_id" {
  description = "Security group that says who reaches it."
  type        = string
}

variable "passwords_secret_id" {
  description = "The secret with the deployment's passwords. Its value goes from there to the store, and into no state and no plan."
  type        = string
}

variable "password_version" {
  description = "Which password that is; the database gets the new one when the number changes."
  type        = number
}

variable "instance_class" {
  description = "Size of the database. Every connection takes some MiB of it; see `hosts_max`."
  type        = string
  default     = "db.m7g.large"

  validation {
    condition     = can(regex("^db\\.[a-z0-9]+\\.[a-z0-9]+$", var.instance_class))
    error_message = "A class of RDS instances, as in db.m7g.large."
  }
}

variable "engine_version" {
  description = "PostgreSQL's major version. The tests of the product run on 18."
  type        = string
  default     = "18"

  validation {
    condition     = contains(["16", "17", "18"], var.engine_version)
    error_message = "16, 17 or 18; minor versions come by themselves."
  }
}

variable "storage_gib" {
  description = "Storage at first. Rows of ended runs stay."
  type        = number
  default     = 100

  validation {
    condition     = var.storage_gib >= 20 && var.storage_gib <= 65536
    error_message = "From 20 to 65,536 GiB."
  }
}

variable "storage_max_gib" {
  description = "How far storage grows by itself."
  type        = number
  default     = 1000

  validation {
    condition     = var.storage_max_gib > var.storage_gib * 1.1
    error_message = "At least a tenth above `storage_gib`, or RDS refuses it."
  }
}

variable "hosts_max" {
  description = "Most hosts at once; each may open 32 connections, and so may each process of the control plane."
  type        = number
  default     = 10

  validation {
    condition     = var.hosts_max >= 1 && var.hosts_max <= 140
    error_message = "From 1 to 140: with more hosts PostgreSQL would need more than 5,000 connections."
  }
}

variable "standby" {
  description = "Whether a second instance in another zone has every commit before it is acknowledged. Without one the end of an instance takes minutes that were acknowledged with it, and the laws of money with them: for trials only."
  type        = bool
  default     = true
}

variable "backup_days" {
  description = "For how many days any second of the past can be restored."
  type        = number
  default     = 14

  validation {
    condition     = var.backup_days >= 1 && var.backup_days <= 35
    error_message = "From 1 to 35 days; never without."
  }
}

variable "log_days" {
  description = "For how many days its logs are kept."
  type        = number
  default     = 30
}

variable "deletable" {
  description = "Whether `terraform destroy` may delete the database, and without a last snapshot."
  type        = bool
  default     = false
}
