variable "deployment" {
  description = "Name of the deployment; every name and tag has it."
  type        = string

  validation {
    condition     = can(regex("^[a-z](-?[a-z0-9])+$", var.deployment)) && length(var.deployment) <= 24
    error_message = "A deployment's name is 2 to 24 lower-case letters, digits and single dashes between them, and begins with a letter."
  }
}

variable "passwords_version" {
  description = "Which passwords these are (PostgreSQL, Redis, Flower, metrics). One more, and all are drawn anew and given to the stores; control instances have to be replaced after it."
  type        = number
  default     = 1

  validation {
    condition     = var.passwords_version >= 1 && floor(var.passwords_version) == var.passwords_version
    error_message = "A whole number from 1 on."
  }
}

variable "key_version" {
  description = "Which secret API keys are hashed with. One more draws a new one; with `keep_previous_key` keys hashed with the one before go on opening."
  type        = number
  default     = 1

  validation {
    condition     = var.key_version >= 1 && floor(var.key_version) == var.key_version
    error_message = "A whole number from 1 on."
  }
}

variable "keep_previous_key" {
  description = "Whether API keys that were hashed with the secret before this one still open. Off again once all have been used or made anew."
  type        = bool
  default     = false

  validation {
    condition     = !var.keep_previous_key || var.key_version > 1
    error_message = "There is none before the first."
  }
}

variable "database" {
  description = "Where PostgreSQL is, and as whom the control plane logs in."
  type = object({
    address  = string
    port     = number
    name     = string
    username = string
  })
}

variable "redis" {
  description = "Where Redis is, and as whom the control plane and Flower log in."
  type = object({
    address         = string
    port            = number
    username        = string
    flower_username = string
  })
}

variable "database_ca_file" {
  description = "File on instances with the certificates by which RDS is known; the image has it."
  type        = string
  default     = "/etc/promigence/rds-ca.pem"

  validation {
    condition     = startswith(var.database_ca_file, "/")
    error_message = "An absolute path."
  }
}

variable "deletable" {
  description = "Whether what is deleted is gone at once, and not only after 30 days in which it can be had back."
  type        = bool
  default     = false
}
