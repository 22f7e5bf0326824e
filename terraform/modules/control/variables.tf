variable "deployment" {
  description = "Name of the deployment."
  type        = string

  validation {
    condition     = can(regex("^[a-z](-?[a-z0-9])+$", var.deployment)) && length(var.deployment) <= 24
    error_message = "A deployment's name is 2 to 24 lower-case letters, digits and single dashes between them, and begins with a letter."
  }
}

variable "image_id" {
  description = "The image that the instances start from."
  type        = string

  validation {
    condition     = can(regex("^ami-[0-9a-f]{8,17}$", var.image_id))
    error_message = "An id of an image: ami-..."
  }
}

variable "instance_type" {
  description = "Type of the instances."
  type        = string
  default     = "m7i.large"
}

variable "instances" {
  description = "How many there are; with one, the API is away while that is replaced. The caps hold in any case."
  type        = number
  default     = 2

  validation {
    condition     = var.instances >= 1 && var.instances <= 8
    error_message = "1 to 8."
  }
}

variable "vpc_id" {
  description = "The network."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets, one a zone, for the instances."
  type        = set(string)
}

variable "load_balancer_subnet_ids" {
  description = "Subnets of the load balancer, in two zones at least: private ones, unless it is reached from the internet."
  type        = set(string)
}

variable "security_group_id" {
  description = "Security group of the instances."
  type        = string
}

variable "load_balancer_security_group_id" {
  description = "Security group of the load balancer: who may open connections to it."
  type        = string
}

variable "internet_facing" {
  description = "Whether the load balancer has public addresses."
  type        = bool
  default     = false
}

variable "deletion_protection" {
  description = "Whether `terraform destroy` is refused the load balancer."
  type        = bool
  default     = true
}

variable "certificate_arn" {
  description = "Certificate (ACM) of the load balancer, for both names."
  type        = string

  validation {
    condition     = can(regex("^arn:[a-z-]+:acm:", var.certificate_arn))
    error_message = "The ARN of a certificate of the certificate manager. Without one keys would travel in the clear, so there is no such form."
  }
}

variable "flower_host" {
  description = "Name under which Flower is asked for; a record of yours that leads to the load balancer."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9-]+(\\.[a-z0-9-]+)+$", var.flower_host))
    error_message = "A host name, as in flower.promigence.example.com."
  }
}

variable "profile_arn" {
  description = "ARN of the instance profile of the control plane."
  type        = string
}

variable "kms_key_arn" {
  description = "Key of disks, volumes, snapshots and files."
  type        = string
}

variable "blobs_url" {
  description = "Where files and outputs are: s3://bucket/prefix."
  type        = string
}

variable "redis_user_group" {
  description = "Id of ElastiCache's user group that logins of hosts are put into."
  type        = string
}

variable "fleet" {
  description = "Name of the Auto Scaling group of hosts."
  type        = string
}

variable "fleet_min" {
  description = "How many hosts there are at least."
  type        = number
}

variable "fleet_max" {
  description = "How many hosts there may be."
  type        = number
}

variable "placement" {
  description = "Which of equally warm hosts a fork goes to: `spread` takes the one with most room, `pack` the one with least."
  type        = string
  default     = "spread"

  validation {
    condition     = contains(["spread", "pack"], var.placement)
    error_message = "`spread` or `pack`."
  }
}

variable "egress_allow" {
  description = "What runs may ask to reach, as host:port; nothing by default."
  type        = list(string)
  default     = []
}

variable "api_port" {
  description = "Port at which an instance serves the API to the load balancer."
  type        = number
  default     = 8000
}

variable "flower_port" {
  description = "Port at which an instance serves Flower to the load balancer."
  type        = number
  default     = 5555
}

variable "settings" {
  description = "Further settings of the server, as PROMIGENCE_... = value; no secrets."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name, value in var.settings : can(regex("^PROMIGENCE_[A-Z_]+$", name)) && !can(regex("[\\r\\n']", value))])
    error_message = "Names are PROMIGENCE_..., values one line without an apostrophe."
  }
}

variable "credentials_version" {
  description = "Changes with what instances log in with; then they are replaced one after another."
  type        = number
}
