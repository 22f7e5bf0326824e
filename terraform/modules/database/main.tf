# PostgreSQL: the rows are the truth of a deployment, so a commit that was acknowledged must outlive an instance.

locals {
  name = "promigence-${var.deployment}"
  tags = { "promigence:deployment" = var.deployment }
  port = 5432

  # Most connections of one process (the pool and its overflow), and processes of the control plane: API and billing worker on
  # two instances, each old and new beside each other during an upgrade.
  connections_of_process = 32
  control_processes      = 8
  connections            = local.connections_of_process * (var.hosts_max + local.control_processes)

  parameters = {
    "rds.force_ssl"                       = { value = "1", at_once = true }
    "max_connections"                     = { value = tostring(local.connections), at_once = false }
    "log_lock_waits"                      = { value = "1", at_once = true }
    "log_min_duration_statement"          = { value = "1000", at_once = true }
    "idle_in_transaction_session_timeout" = { value = "60000", at_once = true }
  }
}

ephemeral "aws_secretsmanager_secret_version" "passwords" {
  secret_id = var.passwords_secret_id
}

resource "aws_db_subnet_group" "this" {
  name       = local.name
  subnet_ids = var.subnet_ids
  tags       = local.tags
}

resource "aws_db_parameter_group" "this" {
  name_prefix = "${local.name}-"
  family      = "postgres${var.engine_version}"
  description = "TLS for everybody, and connections for as many hosts as there may be"
  tags        = local.tags

  dynamic "parameter" {
    for_each = local.parameters

    content {
      name         = parameter.key
      value        = parameter.value.value
      apply_method = parameter.value.at_once ? "immediate" : "pending-reboot"
    }
  }

  lifecycle {
    create_before_destroy = true
  }
}

# RDS would make them itself, and keep what is in them for ever.
resource "aws_cloudwatch_log_group" "log" {
  for_each = toset(["postgresql", "upgrade"])

  name              = "/aws/rds/instance/${local.name}/${each.key}"
  retention_in_days = var.log_days
  kms_key_id        = var.kms_key_arn
  tags              = local.tags
}

resource "aws_db_instance" "this" {
  depends_on = [aws_cloudwatch_log_group.log]

  identifier     = local.name
  engine         = "postgres"
  engine_version = var.engine_version
  instance_class = var.instance_class

  db_name             = "promigence"
  username            = "promigence"
  password_wo         = jsondecode(ephemeral.aws_secretsmanager_secret_version.passwords.secret_string).database
  password_wo_version = var.password_version

  multi_az               = var.standby
  db_subnet_group_name   = aws_db_subnet_group.this.name
  vpc_security_group_ids = [var.security_group_id]
  publicly_accessible    = false
  port                   = local.port
  ca_cert_identifier     = "rds-ca-rsa2048-g1"
  parameter_group_name   = aws_db_parameter_group.this.name

  storage_type          = "gp3"
  allocated_storage     = var.storage_gib
  max_allocated_storage = var.storage_max_gib
  storage_encrypted     = true
  kms_key_id            = var.kms_key_arn

  backup_retention_period   = var.backup_days
  backup_window             = "03:00-04:00"
  copy_tags_to_snapshot     = true
  delete_automated_backups  = var.deletable
  deletion_protection       = !var.deletable
  skip_final_snapshot       = var.deletable
  final_snapshot_identifier = var.deletable ? null : "${local.name}-last"

  maintenance_window          = "sun:04:30-sun:05:30"
  auto_minor_version_upgrade  = true
  allow_major_version_upgrade = false
  # A change that restarts the database waits for its window.
  apply_immediately = false

  enabled_cloudwatch_logs_exports = ["postgresql", "upgrade"]

  tags = local.tags
}
