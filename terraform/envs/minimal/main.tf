# A deployment to try: one of everything, small, and gone with `destroy`. Without a standby a lost database instance takes commits with it that were acknowledged.

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

  deployment                 = var.deployment
  zones                      = var.zones
  network_cidr               = var.network_cidr
  client_cidrs               = var.client_cidrs
  certificate_arn            = var.certificate_arn
  api_host                   = var.api_host
  flower_host                = var.flower_host
  alarm_email                = var.alarm_email
  release                    = var.release
  release_sha256             = var.release_sha256
  image_id                   = var.image_id
  instance_types             = var.instance_types
  fleet_max                  = var.fleet_max
  egress_allow               = var.egress_allow
  host_egress                = var.host_egress
  builder_subnet_id          = var.builder_subnet_id
  builder_security_group_ids = var.builder_security_group_ids
  internet_facing            = var.internet_facing

  # Sizes.
  endpoint_zones      = 1
  control_type        = "m7i.large"
  control_instances   = 1
  database_class      = "db.t4g.medium"
  database_standby    = false
  backup_days         = 1
  redis_type          = "cache.t4g.micro"
  redis_replicas      = 0
  disk_gib            = 64
  disk_throughput_mib = 250
  drain_seconds       = 900
  deletable           = true
}
