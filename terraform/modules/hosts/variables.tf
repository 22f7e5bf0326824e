variable "deployment" {
  description = "Name of the deployment."
  type        = string

  validation {
    condition     = can(regex("^[a-z](-?[a-z0-9])+$", var.deployment)) && length(var.deployment) <= 24
    error_message = "A deployment's name is 2 to 24 lower-case letters, digits and single dashes between them, and begins with a letter."
  }
}

variable "image_id" {
  description = "The image that hosts start from."
  type        = string

  validation {
    condition     = can(regex("^ami-[0-9a-f]{8,17}$", var.image_id))
    error_message = "An id of an image: ami-..."
  }
}

variable "instance_types" {
  description = "What hosts may be, the first choice first: of c8i, m8i and r8i, in which machines are nested, or metal. Alike in memory and processors, for slots are counted as on the first."
  type        = list(string)
  default     = ["m8i.4xlarge"]

  validation {
    condition     = length(var.instance_types) > 0 && alltrue([for type in var.instance_types : can(regex("^[cmr]8i\\.[a-z0-9]+$|^[a-z0-9-]+\\.metal(-[a-z0-9]+)?$", type))])
    error_message = "KVM works on c8i, m8i and r8i with nested virtualisation, and on metal; no other type runs machines at speed."
  }

  validation {
    condition     = length(distinct([for type in var.instance_types : can(regex("\\.metal", type))])) == 1
    error_message = "Either all types are metal or none is: one launch template turns nested virtualisation on or leaves it off."
  }
}

variable "group_name" {
  description = "Name of the Auto Scaling group."
  type        = string
}

variable "fleet_min" {
  description = "How many hosts there are at least."
  type        = number
  default     = 0

  validation {
    condition     = var.fleet_min >= 0
    error_message = "0 or more."
  }
}

variable "fleet_max" {
  description = "How many hosts there may be: the bound on what the fleet can cost."
  type        = number
  default     = 10

  validation {
    condition     = var.fleet_max >= 1 && var.fleet_max >= var.fleet_min
    error_message = "At least 1, and not below fleet_min."
  }
}

variable "spot_percent" {
  description = "Share of hosts beyond `on_demand_base` that are spot instances. One that is taken back loses its forks; those are replaced where that is allowed."
  type        = number
  default     = 0

  validation {
    condition     = var.spot_percent >= 0 && var.spot_percent <= 100
    error_message = "0 to 100."
  }
}

variable "on_demand_base" {
  description = "How many hosts are on demand before spot instances come in."
  type        = number
  default     = 0
}

variable "subnet_ids" {
  description = "Private subnets, one a zone, that hosts are spread over."
  type        = set(string)

  validation {
    condition     = length(var.subnet_ids) > 0
    error_message = "At least one."
  }
}

variable "security_group_id" {
  description = "Security group of hosts: nothing comes in."
  type        = string
}

variable "profile_arn" {
  description = "ARN of the instance profile of hosts."
  type        = string
}

variable "kms_key_arn" {
  description = "Key of disks, volumes and snapshots."
  type        = string
}

variable "blobs_url" {
  description = "Where files and outputs are: s3://bucket/prefix."
  type        = string
}

variable "forbidden_cidrs" {
  description = "Networks that no task's traffic gets to, whatever the allow-list says: those with the database, Redis and the endpoints of AWS."
  type        = list(string)

  validation {
    condition     = length(var.forbidden_cidrs) > 0 && alltrue([for cidr in var.forbidden_cidrs : can(cidrhost(cidr, 0))])
    error_message = "At least one network, each in CIDR notation."
  }
}

variable "egress_allow" {
  description = "What runs may ask to reach, as host:port; nothing by default."
  type        = list(string)
  default     = []
}

variable "disk_gib" {
  description = "Disk of a host: the system's 20 GiB, and for each slot the `disk_gib` of its forks in full."
  type        = number
  default     = 200

  validation {
    condition     = var.disk_gib >= 32
    error_message = "32 GiB at least."
  }
}

variable "disk_iops" {
  description = "Operations a second of that disk."
  type        = number
  default     = 6000

  validation {
    condition     = var.disk_iops >= 3000 && var.disk_iops <= 80000
    error_message = "gp3 has 3,000 to 80,000."
  }
}

variable "disk_throughput_mib" {
  description = "MiB/s of that disk."
  type        = number
  default     = 500

  validation {
    condition     = var.disk_throughput_mib >= 125 && var.disk_throughput_mib <= 2000
    error_message = "gp3 has 125 to 2,000 MiB/s."
  }
}

variable "disk_reserve_gib" {
  description = "With less left on its disk a host takes no forks."
  type        = number
  default     = 8
}

variable "volume_rate_mib" {
  description = "How fast a volume is filled from its snapshot (100 to 300 MiB/s), at a price; null: at AWS's own pace, for nothing."
  type        = number
  default     = null

  validation {
    condition     = var.volume_rate_mib == null || try(var.volume_rate_mib >= 100 && var.volume_rate_mib <= 300, false)
    error_message = "100 to 300, or null."
  }
}

variable "drain_seconds" {
  description = "How long an instance that is to end may go on with what it runs: the longest command and hold that you allow."
  type        = number
  default     = 3600

  validation {
    condition     = var.drain_seconds >= 60 && var.drain_seconds <= 7200
    error_message = "60 to 7,200: the group waits no longer without being told to."
  }
}

variable "settings" {
  description = "Further settings of the worker, as PROMIGENCE_... = value; no secrets."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name, value in var.settings : can(regex("^PROMIGENCE_[A-Z_]+$", name)) && !can(regex("[\\r\\n']", value))])
    error_message = "Names are PROMIGENCE_..., values one line without an apostrophe."
  }
}
