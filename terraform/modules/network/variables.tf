variable "deployment" {
  description = "Name of the deployment; every name and tag has it."
  type        = string

  validation {
    condition     = can(regex("^[a-z](-?[a-z0-9])+$", var.deployment)) && length(var.deployment) <= 24
    error_message = "A deployment's name is 2 to 24 lower-case letters, digits and single dashes between them, and begins with a letter."
  }
}

variable "cidr" {
  description = "Addresses of the network. A /16 gives each zone 4,096 private and 256 public ones."
  type        = string
  default     = "10.40.0.0/16"

  validation {
    condition     = can(cidrhost(var.cidr, 0)) && try(tonumber(split("/", var.cidr)[1]), 0) >= 16 && try(tonumber(split("/", var.cidr)[1]), 99) <= 20
    error_message = "A block of IPv4 addresses from /16 to /20, as in 10.40.0.0/16."
  }
}

variable "zones" {
  description = "Availability zones: two or three. The database and the load balancer want two even in a trial; a zone without hosts costs nothing but its endpoints."
  type        = list(string)

  validation {
    condition     = length(var.zones) >= 2 && length(var.zones) <= 3 && length(distinct(var.zones)) == length(var.zones)
    error_message = "Two or three different zones, as in [\"us-east-1a\", \"us-east-1b\"]."
  }
}

variable "endpoint_zones" {
  description = "In how many of the zones, from the first on, the interface endpoints have an address. Each is paid by the hour; a zone without one reaches those of another, and is cut off with it."
  type        = number
  default     = 3

  validation {
    condition     = contains([1, 2, 3], var.endpoint_zones)
    error_message = "1, 2 or 3."
  }
}

variable "client_cidrs" {
  description = "Who may open connections to the load balancer, as blocks of IPv4 addresses. Nobody, if empty."
  type        = list(string)

  validation {
    condition     = alltrue([for cidr in var.client_cidrs : can(cidrhost(cidr, 0))])
    error_message = "Blocks of IPv4 addresses, as in [\"203.0.113.0/24\"]."
  }
}

variable "internet_facing" {
  description = "Whether there are public subnets, for a load balancer that is reached from the internet. Nothing else ever stands in them."
  type        = bool
  default     = false
}

variable "nat" {
  description = "Whether instances reach the internet, through one NAT gateway in the first zone. Not needed to run: a baked image has all, and AWS's services are reached by endpoints."
  type        = bool
  default     = false
}

variable "host_egress" {
  description = "What runs may reach from the hosts besides AWS: policy servers and the like. The deployment's own allow-list still decides which of it a run may use."
  type = list(object({
    description = string
    cidr        = string
    from_port   = number
    to_port     = number
  }))
  default = []

  validation {
    condition = alltrue([
      for each in var.host_egress :
      can(cidrhost(each.cidr, 0)) && each.from_port >= 1 && each.to_port <= 65535 && each.from_port <= each.to_port
    ])
    error_message = "Each with a block of IPv4 addresses and ports from 1 to 65535, the first not above the last."
  }

  validation {
    condition     = !anytrue([for each in var.host_egress : startswith(each.cidr, "169.254.") || each.cidr == "0.0.0.0/0"])
    error_message = "Neither link-local addresses, where instance metadata is, nor all addresses."
  }
}

variable "api_port" {
  description = "Port at which control instances serve the API to the load balancer."
  type        = number
  default     = 8000
}

variable "flower_port" {
  description = "Port at which control instances serve Flower to the load balancer."
  type        = number
  default     = 5555
}
