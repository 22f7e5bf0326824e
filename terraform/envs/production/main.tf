# A deployment to depend on: two of everything, in two or three zones, and nothing that `destroy` could take with it.

terraform {
  required_version = ">= 1.11"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.40, < 7.0"
    }
  }
}

provider "aws" {
  region = var.region

  # Not the deployment's own tag, by which the product finds its volumes and snapshots.
  default_tags {
    tags = { "promigence:by" = "terraform" }
  }
}

module "deployment" {
  source = "../../modules/deployment"

  deployment                   = var.deployment
  zones                        = var.zones
  network_cidr                 = var.network_cidr
  client_cidrs                 = var.client_cidrs
  internet_facing              = var.internet_facing
  certificate_arn              = var.certificate_arn
  api_host                     = var.api_host
  flower_host                  = var.flower_host
  alarm_email                  = var.alarm_email
  release                      = var.release
  release_sha256               = var.release_sha256
  image_id                     = var.image_id
  instance_types               = var.instance_types
  fleet_min                    = var.fleet_min
  fleet_max                    = var.fleet_max
  spot_percent                 = var.spot_percent
  on_demand_base               = var.on_demand_base
  disk_gib                     = var.disk_gib
  egress_allow                 = var.egress_allow
  host_egress                  = var.host_egress
  volume_rate_mib              = var.volume_rate_mib
  builder_subnet_id            = var.builder_subnet_id
  builder_security_group_ids   = var.builder_security_group_ids
  passwords_version            = var.passwords_version
  key_version                  = var.key_version
  keep_previous_key            = var.keep_previous_key
  idle_commitment_usd_per_hour = var.idle_commitment_usd_per_hour
  permissions_boundary         = var.permissions_boundary
  deletable                    = var.deletable
}
