# One deployment, whole: what the roots below envs/ only choose sizes for.

locals {
  group_name = "promigence-${var.deployment}-host"
  runs       = var.image_id != null
}

module "network" {
  source = "../network"

  deployment      = var.deployment
  cidr            = var.network_cidr
  zones           = var.zones
  endpoint_zones  = var.endpoint_zones
  client_cidrs    = var.client_cidrs
  internet_facing = var.internet_facing
  host_egress     = var.host_egress
}

module "secrets" {
  source = "../secrets"

  deployment        = var.deployment
  passwords_version = var.passwords_version
  key_version       = var.key_version
  keep_previous_key = var.keep_previous_key
  deletable         = var.deletable

  database = {
    address  = module.database.address
    port     = module.database.port
    name     = module.database.name
    username = module.database.username
  }

  redis = {
    address         = module.redis.address
    port            = module.redis.port
    username        = module.redis.username
    flower_username = module.redis.flower_username
  }
}

module "database" {
  source = "../database"

  deployment          = var.deployment
  kms_key_arn         = module.secrets.kms_key_arn
  subnet_ids          = module.network.private_subnet_ids
  security_group_id   = module.network.security_group_ids.database
  passwords_secret_id = module.secrets.passwords_secret_id
  password_version    = module.secrets.passwords_version
  instance_class      = var.database_class
  standby             = var.database_standby
  hosts_max           = var.fleet_max
  backup_days         = var.backup_days
  deletable           = var.deletable
}

module "redis" {
  source = "../redis"

  deployment          = var.deployment
  kms_key_arn         = module.secrets.kms_key_arn
  subnet_ids          = module.network.private_subnet_ids
  security_group_id   = module.network.security_group_ids.redis
  passwords_secret_id = module.secrets.passwords_secret_id
  password_version    = module.secrets.passwords_version
  node_type           = var.redis_type
  replicas            = var.redis_replicas
}

module "storage" {
  source = "../storage"

  deployment  = var.deployment
  kms_key_arn = module.secrets.kms_key_arn
  deletable   = var.deletable
  # A database of some days ago names files that have been deleted since.
  old_version_days = var.backup_days
}

module "iam" {
  source = "../iam"

  deployment           = var.deployment
  kms_key_arn          = module.secrets.kms_key_arn
  bucket_arn           = module.storage.bucket_arn
  blobs_prefix         = module.storage.blobs_prefix
  releases_prefix      = module.storage.releases_prefix
  group_name           = local.group_name
  permissions_boundary = var.permissions_boundary
}

module "image" {
  source = "../image"
  count  = var.release == null ? 0 : 1

  deployment                 = var.deployment
  release                    = var.release
  release_sha256             = var.release_sha256
  bucket                     = module.storage.bucket
  releases_prefix            = module.storage.releases_prefix
  builder_profile            = module.iam.builder_profile
  builder_subnet_id          = var.builder_subnet_id
  builder_security_group_ids = var.builder_security_group_ids
}

module "control" {
  source = "../control"
  count  = local.runs ? 1 : 0

  deployment                      = var.deployment
  image_id                        = var.image_id
  instance_type                   = var.control_type
  instances                       = var.control_instances
  vpc_id                          = module.network.vpc_id
  subnet_ids                      = module.network.private_subnet_ids
  load_balancer_subnet_ids        = var.internet_facing ? module.network.public_subnet_ids : module.network.private_subnet_ids
  security_group_id               = module.network.security_group_ids.control
  load_balancer_security_group_id = module.network.security_group_ids.load_balancer
  internet_facing                 = var.internet_facing
  deletion_protection             = !var.deletable
  certificate_arn                 = var.certificate_arn
  flower_host                     = var.flower_host
  profile_arn                     = module.iam.control_profile_arn
  kms_key_arn                     = module.secrets.kms_key_arn
  credentials_version             = module.secrets.control_version
  blobs_url                       = module.storage.blobs_url
  redis_user_group                = module.redis.user_group_id
  fleet                           = local.group_name
  fleet_min                       = var.fleet_min
  fleet_max                       = var.fleet_max
  egress_allow                    = var.egress_allow
  settings                        = var.settings
}

module "hosts" {
  source = "../hosts"
  count  = local.runs ? 1 : 0

  deployment          = var.deployment
  image_id            = var.image_id
  instance_types      = var.instance_types
  group_name          = local.group_name
  fleet_min           = var.fleet_min
  fleet_max           = var.fleet_max
  spot_percent        = var.spot_percent
  on_demand_base      = var.on_demand_base
  subnet_ids          = module.network.private_subnet_ids
  security_group_id   = module.network.security_group_ids.host
  profile_arn         = module.iam.host_profile_arn
  kms_key_arn         = module.secrets.kms_key_arn
  blobs_url           = module.storage.blobs_url
  forbidden_cidrs     = [var.network_cidr]
  egress_allow        = var.egress_allow
  disk_gib            = var.disk_gib
  disk_throughput_mib = var.disk_throughput_mib
  volume_rate_mib     = var.volume_rate_mib
  drain_seconds       = var.drain_seconds
  settings            = var.settings
}

module "monitoring" {
  source = "../monitoring"

  deployment                   = var.deployment
  kms_key_arn                  = module.secrets.kms_key_arn
  emails                       = var.alarm_email == null ? [] : [var.alarm_email]
  redis_node_ids               = module.redis.node_ids
  idle_commitment_usd_per_hour = var.idle_commitment_usd_per_hour

  database = {
    identifier  = module.database.identifier
    storage_gib = module.database.storage_gib
    connections = module.database.connections
  }

  load_balancer = local.runs ? {
    arn_suffix    = module.control[0].load_balancer_arn_suffix
    target_groups = module.control[0].target_group_arn_suffixes
  } : null
}
