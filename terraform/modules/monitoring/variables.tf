variable "deployment" {
  description = "Name of the deployment; every name and tag has it."
  type        = string

  validation {
    condition     = can(regex("^[a-z](-?[a-z0-9])+$", var.deployment)) && length(var.deployment) <= 24
    error_message = "A deployment's name is 2 to 24 lower-case letters, digits and single dashes between them, and begins with a letter."
  }
}

variable "kms_key_arn" {
  description = "Key that logs and messages are encrypted with."
  type        = string

  validation {
    condition     = can(regex("^arn:[a-z-]+:kms:", var.kms_key_arn))
    error_message = "The ARN of a KMS key, not its id or alias."
  }
}

variable "log_days" {
  description = "For how many days logs are kept."
  type        = number
  default     = 30

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096], var.log_days)
    error_message = "A number of days that CloudWatch has: 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731 or 1096."
  }
}

variable "emails" {
  description = "Who hears of alarms. Each address has to say yes to a message of AWS's first. Whatever else is to hear subscribes to the topic."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for email in var.emails : can(regex("^[^@\\s]+@[^@\\s]+$", email))])
    error_message = "Addresses as in ops@example.com."
  }
}

variable "database" {
  description = "The database to watch: its identifier, its storage at first, and the connections that it takes."
  type = object({
    identifier  = string
    storage_gib = number
    connections = number
  })
}

variable "redis_node_ids" {
  description = "The nodes of Redis to watch."
  type        = list(string)
}

variable "load_balancer" {
  description = "The load balancer to watch, as suffixes of ARNs, with its target groups by the part behind each; none before there are control instances."
  type = object({
    arn_suffix    = string
    target_groups = map(string)
  })
  default = null
}

variable "queue_age_seconds" {
  description = "A fork that waits for a host for longer than this is an alarm."
  type        = number
  default     = 300

  validation {
    condition     = var.queue_age_seconds >= 60
    error_message = "At least a minute: starting an instance takes longer."
  }
}

variable "env_failed_share" {
  description = "A larger share of forks that their environment failed, among those that ended in 15 minutes, is an alarm."
  type        = number
  default     = 0.1

  validation {
    condition     = var.env_failed_share > 0 && var.env_failed_share < 1
    error_message = "Above 0 and below 1."
  }
}

variable "env_failed_of" {
  description = "With fewer forks than this in 15 minutes no share is an alarm."
  type        = number
  default     = 20
}

variable "idle_commitment_usd_per_hour" {
  description = "More than this of the commitment's price that nobody uses for six hours is an alarm. Never, if null."
  type        = number
  default     = null
}
