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
  description = "Which password that is; Redis gets the new one when the number changes."
  type        = number
}

variable "node_type" {
  description = "Size of a node. Bells are small and short-lived: memory is for a million of them at most."
  type        = string
  default     = "cache.t4g.small"

  validation {
    condition     = can(regex("^cache\\.[a-z0-9]+\\.[a-z0-9]+$", var.node_type))
    error_message = "A type of ElastiCache nodes, as in cache.t4g.small."
  }
}

variable "replicas" {
  description = "Nodes beside the first, each in another zone, of which one takes over when it is lost. None in a trial: what rings again is lost with the node, for some seconds."
  type        = number
  default     = 1

  validation {
    condition     = contains([0, 1, 2], var.replicas)
    error_message = "0, 1 or 2."
  }
}

variable "engine_version" {
  description = "Valkey's version: the Redis of version 7, by those who made it."
  type        = string
  default     = "7.2"

  validation {
    condition     = startswith(var.engine_version, "7.")
    error_message = "A version 7: the parameters are those of valkey7."
  }
}
