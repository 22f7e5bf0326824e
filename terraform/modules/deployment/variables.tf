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

variable "internet_facing" {
  description = "Whether the load balancer has public addresses, and public subnets to stand in. Nothing else ever has."
  type        = bool
  default     = false
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
}

variable "fleet_min" {
  description = "How many hosts there are at least."
  type        = number
  default     = 0
}

variable "fleet_max" {
  description = "How many hosts there may be: the bound on what the fleet can cost."
  type        = number

  validation {
    condition     = var.fleet_max >= 1 && var.fleet_max <= 97
    error_message = "From 1 to 97: AWS takes 100 users into the user group of Redis, and three of them are not hosts'."
  }
}

variable "spot_percent" {
  description = "Share of hosts beyond `on_demand_base` that are spot instances, in per cent."
  type        = number
  default     = 0
}

variable "on_demand_base" {
  description = "How many hosts are on demand before spot instances come in."
  type        = number
  default     = 0
}

variable "disk_gib" {
  description = "Disk of a host: 20 GiB, and for each slot the disk of its forks in full."
  type        = number
  default     = 200
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

variable "endpoint_zones" {
  description = "In how many zones the endpoints of AWS have an address."
  type        = number
  default     = 3
}

variable "control_type" {
  description = "Type of the control plane's instances."
  type        = string
  default     = "m7i.large"
}

variable "control_instances" {
  description = "How many of them there are."
  type        = number
  default     = 2
}

variable "database_class" {
  description = "Class of the database."
  type        = string
  default     = "db.m7g.large"
}

variable "database_standby" {
  description = "Whether a standby in another zone has every commit before it is acknowledged."
  type        = bool
  default     = true
}

variable "backup_days" {
  description = "For how many days any second of the past can be restored."
  type        = number
  default     = 14
}

variable "redis_type" {
  description = "Type of Redis' nodes."
  type        = string
  default     = "cache.t4g.small"
}

variable "redis_replicas" {
  description = "How many of them stand by."
  type        = number
  default     = 1
}

variable "disk_throughput_mib" {
  description = "MiB/s of a host's disk."
  type        = number
  default     = 500
}

variable "volume_rate_mib" {
  description = "How fast a volume is filled from its snapshot (100 to 300 MiB/s), at a price; null: at AWS's own pace."
  type        = number
  default     = null
}

variable "drain_seconds" {
  description = "How long a host that is to end may go on with what it runs."
  type        = number
  default     = 3600
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

variable "passwords_version" {
  description = "Which passwords the stores have; one more draws new ones."
  type        = number
  default     = 1
}

variable "key_version" {
  description = "Which secret API keys are hashed with; one more draws a new one."
  type        = number
  default     = 1
}

variable "keep_previous_key" {
  description = "Whether keys that were hashed with the secret before still open."
  type        = bool
  default     = false
}

variable "idle_commitment_usd_per_hour" {
  description = "More than this of a commitment that nobody uses for six hours is an alarm; null: never."
  type        = number
  default     = null
}

variable "permissions_boundary" {
  description = "ARN of a policy that limits all roles, where the account wants one."
  type        = string
  default     = null
}

variable "settings" {
  description = "Further settings of the server, as PROMIGENCE_... = value; no secrets."
  type        = map(string)
  default     = {}
}

variable "deletable" {
  description = "Whether `terraform destroy` may delete rows, files and keys with the rest."
  type        = bool
  default     = false
}
