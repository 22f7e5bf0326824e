variable "region" {
  description = "Region of AWS."
  type        = string

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.region))
    error_message = "A region, as in us-east-1."
  }
}

variable "deployment" {
  description = "Name of the deployment: every name and tag has it, and two deployments of one account need two."
  type        = string

  validation {
    condition     = can(regex("^[a-z](-?[a-z0-9])+$", var.deployment)) && length(var.deployment) <= 24
    error_message = "A deployment's name is 2 to 24 lower-case letters, digits and single dashes between them, and begins with a letter."
  }
}

variable "zones" {
  description = "Availability zones, two or three."
  type        = list(string)

  validation {
    condition     = length(var.zones) >= 2 && length(var.zones) <= 3
    error_message = "Two or three."
  }
}

variable "network_cidr" {
  description = "Addresses of the network; of none that it is to be joined to."
  type        = string
  default     = "10.40.0.0/16"

  validation {
    condition     = can(cidrhost(var.network_cidr, 0))
    error_message = "A block of IPv4 addresses, as in 10.40.0.0/16."
  }
}

variable "client_cidrs" {
  description = "Who may open connections to the API and to Flower, as blocks of IPv4 addresses."
  type        = list(string)

  validation {
    condition     = length(var.client_cidrs) > 0 && alltrue([for cidr in var.client_cidrs : can(cidrhost(cidr, 0))])
    error_message = "At least one block, as in [\"10.0.0.0/8\"]."
  }
}

variable "certificate_arn" {
  description = "Certificate (ACM) of the load balancer, for the names of the API and of Flower."
  type        = string

  validation {
    condition     = can(regex("^arn:[a-z-]+:acm:", var.certificate_arn))
    error_message = "The ARN of a certificate of the certificate manager."
  }
}

variable "api_host" {
  description = "Name under which clients ask for the API; a record of yours leads it to the load balancer."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9-]+(\\.[a-z0-9-]+)+$", var.api_host))
    error_message = "A host name, as in promigence.example.com."
  }
}

variable "flower_host" {
  description = "Name under which Flower is asked for; a record of yours leads it to the load balancer."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9-]+(\\.[a-z0-9-]+)+$", var.flower_host)) && var.flower_host != var.api_host
    error_message = "A host name of its own, as in flower.promigence.example.com."
  }
}

variable "alarm_email" {
  description = "Who is written to when an alarm goes off; AWS asks that address once whether it wants to be. Null: nobody."
  type        = string
  default     = null

  validation {
    condition     = var.alarm_email == null || can(regex("^[^@ ]+@[^@ ]+$", var.alarm_email))
    error_message = "An address of mail."
  }
}

variable "release" {
  description = "Which release the image is made of, as `make release` names it; null until one has been published."
  type        = string
  default     = null
}

variable "release_sha256" {
  description = "The sha256 of that release's archive."
  type        = string
  default     = null

  validation {
    condition     = var.release == null || can(regex("^[0-9a-f]{64}$", var.release_sha256))
    error_message = "64 lower-case hex digits, as `make release` prints them."
  }
}

variable "image_id" {
  description = "The image that everything runs from; null until one has been made: then there is no control plane and there are no hosts yet."
  type        = string
  default     = null

  validation {
    condition     = var.image_id == null || can(regex("^ami-[0-9a-f]{8,17}$", var.image_id))
    error_message = "An id of an image: ami-..."
  }
}

variable "instance_types" {
  description = "What hosts may be, the first choice first: of c8i, m8i and r8i, or metal."
  type        = list(string)
  default     = ["m8i.xlarge"]
}

variable "fleet_max" {
  description = "How many hosts there may be: the bound on what the fleet can cost."
  type        = number
  default     = 2
}

variable "egress_allow" {
  description = "What runs may ask to reach, as host:port; nothing by default. The network has to let it through too: `host_egress`."
  type        = list(string)
  default     = []
}

variable "host_egress" {
  description = "What the network lets hosts reach besides the deployment: where policy servers are."
  type        = list(object({ description = string, cidr = string, from_port = number, to_port = number }))
  default     = []
}

variable "builder_subnet_id" {
  description = "A subnet from which the internet is reached, where images are made; null: in the account's default network."
  type        = string
  default     = null
}

variable "builder_security_group_ids" {
  description = "Security groups of the machine on which they are made."
  type        = set(string)
  default     = null
}

variable "internet_facing" {
  description = "Whether the load balancer has public addresses, and public subnets to stand in. Nothing else ever has."
  type        = bool
  default     = false
}
