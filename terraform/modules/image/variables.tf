variable "deployment" {
  description = "Name of the deployment."
  type        = string

  validation {
    condition     = can(regex("^[a-z](-?[a-z0-9])+$", var.deployment)) && length(var.deployment) <= 24
    error_message = "A deployment's name is 2 to 24 lower-case letters, digits and single dashes between them, and begins with a letter."
  }
}

variable "release" {
  description = "Which release of the server the image has, as `make release` names it: 0.1.0-1a2b3c4d5e6f."
  type        = string

  validation {
    condition     = can(regex("^[0-9]+\\.[0-9]+\\.[0-9]+-[0-9a-f]{12}$", var.release))
    error_message = "A release is a version, a dash and twelve hex digits of its commit."
  }
}

variable "release_sha256" {
  description = "The sha256 of the release's archive, as `make release` prints it: what lies in the bucket is checked against it."
  type        = string

  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.release_sha256))
    error_message = "64 lower-case hex digits."
  }
}

variable "bucket" {
  description = "Name of the bucket that has the release."
  type        = string
}

variable "releases_prefix" {
  description = "Below it the bucket has releases."
  type        = string
  default     = "releases"
}

variable "builder_profile" {
  description = "Name of the instance profile of the machine on which the image is made."
  type        = string
}

variable "builder_types" {
  description = "Instance types on which the image may be made."
  type        = set(string)
  default     = ["m7i.large", "m6i.large"]
}

variable "builder_subnet_id" {
  description = "A subnet from which the internet is reached, for the distribution's and Python's packages; null: the account's default network."
  type        = string
  default     = null
}

variable "builder_security_group_ids" {
  description = "Security groups of that machine; nothing needs to reach it. Needed where `builder_subnet_id` is given."
  type        = set(string)
  default     = null
}

variable "parent_image" {
  description = "Id of the image to begin with; null: the newest of Debian 12 that Debian publishes."
  type        = string
  default     = null

  validation {
    condition     = var.parent_image == null || can(regex("^ami-[0-9a-f]{8,17}$", var.parent_image))
    error_message = "An id of an image: ami-..."
  }
}

variable "disk_gib" {
  description = "Size of the image's disk."
  type        = number
  default     = 20

  validation {
    condition     = var.disk_gib >= 16
    error_message = "Set-up takes about 8 GiB beside the system: 16 at least."
  }
}

variable "database_ca_file" {
  description = "Where the image has the certificates by which RDS is known: what the database's address names."
  type        = string
  default     = "/etc/promigence/rds-ca.pem"
}
