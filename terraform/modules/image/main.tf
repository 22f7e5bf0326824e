# The image that hosts and the control plane start from: Debian 12 with one release of the server, made by EC2 Image
# Builder. It is made when somebody starts the pipeline, and only then; a release that is named anew is a new recipe.

data "aws_partition" "this" {}
data "aws_region" "this" {}

data "aws_ssm_parameter" "debian" {
  name = "/aws/service/debian/release/12/latest/amd64"
}

locals {
  name = "promigence-${var.deployment}-${replace(var.release, ".", "-")}"
  # Component and recipe are never changed, only replaced, and there may be no two of one name: what they are made of is in it.
  made    = "${local.name}-${substr(sha256(jsonencode([local.document, local.begin, var.parent_image, var.disk_gib])), 0, 8)}"
  archive = "/tmp/promigence.tar.gz"
  home    = "/opt/promigence/releases/${var.release}"
  agent   = "https://amazoncloudwatch-agent-${data.aws_region.this.region}.s3.${data.aws_region.this.region}.amazonaws.com/debian/amd64/latest/amazon-cloudwatch-agent.deb"
  ssm     = "https://s3.${data.aws_region.this.region}.amazonaws.com/amazon-ssm-${data.aws_region.this.region}/latest/debian_amd64/amazon-ssm-agent.deb"
  # The certificates by which instances know their database.
  database_ca = "https://truststore.pki.rds.amazonaws.com/global/global-bundle.pem"
  tags        = { "promigence:deployment" = var.deployment, "promigence:release" = var.release }
  # Volumes and snapshots with the deployment's tag are the product's own: its reaper would take these for leaks.
  image_tags = { "promigence:image-of" = var.deployment, "promigence:release" = var.release }
}

resource "aws_imagebuilder_component" "this" {
  name        = local.made
  description = "Release ${var.release} of Promigence, with all that it needs at run time."
  platform    = "Linux"
  version     = "1.0.0"
  tags        = local.tags
  data        = local.document

  lifecycle {
    create_before_destroy = true
  }
}

locals {
  document = yamlencode({
    name          = "promigence"
    description   = "Installs a release of Promigence."
    schemaVersion = "1.0"
    phases = [
      {
        name = "build"
        steps = [
          {
            name   = "Fetch"
            action = "S3Download"
            inputs = [{
              source      = "s3://${var.bucket}/${var.releases_prefix}/promigence-${var.release}.tar.gz"
              destination = local.archive
            }]
          },
          {
            name           = "FetchAmazonsOwn"
            action         = "WebDownload"
            maxAttempts    = 3
            timeoutSeconds = 300
            inputs = [
              { source = local.agent, destination = "/tmp/agent.deb" },
              { source = local.database_ca, destination = "/tmp/rds-ca.pem" },
            ]
          },
          {
            name           = "Install"
            action         = "ExecuteBash"
            timeoutSeconds = 3600
            inputs = {
              commands = [
                "set -eu",
                "echo '${var.release_sha256}  ${local.archive}' | sha256sum --check --strict",
                "dpkg --install /tmp/agent.deb",
                "install -D -m 0644 /tmp/rds-ca.pem ${var.database_ca_file}",
                "install -d -m 0755 ${local.home}",
                "tar -xzf ${local.archive} -C ${local.home}",
                "${local.home}/deploy/image/install",
                "rm -f ${local.archive} /tmp/agent.deb /tmp/rds-ca.pem",
              ]
            }
          },
        ]
      },
      {
        name  = "validate"
        steps = [local.looks]
      },
      {
        # On an instance that was started from the image.
        name  = "test"
        steps = [local.looks]
      },
    ]
  })

  # Image Builder tells the machine what to do by an agent that Debian's image has not, and Debian is not among the systems of
  # which Amazon says that it is put there.
  begin = <<-END
    #!/bin/bash
    set -eu
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update
    apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 install -y --no-install-recommends ca-certificates curl
    curl --silent --show-error --fail --retry 8 --retry-all-errors --output /tmp/ssm.deb '${local.ssm}'
    dpkg --install /tmp/ssm.deb
    systemctl enable --now amazon-ssm-agent
  END

  looks = {
    name           = "Look"
    action         = "ExecuteBash"
    timeoutSeconds = 300
    inputs = {
      commands = [
        "set -eu",
        "/opt/promigence/current/.venv/bin/promigence-server --help >/dev/null",
        "systemd-analyze verify /etc/systemd/system/promigence-*.service /etc/systemd/system/promigence-*.slice",
        "nft --check --file /etc/nftables.conf",
        "test -e /opt/promigence/current/.promigence/bin/keeper",
        "test -d /opt/promigence/current/.promigence/images/debian-12",
      ]
    }
  }
}

resource "aws_imagebuilder_image_recipe" "this" {
  name             = local.made
  description      = "Debian 12 with release ${var.release} of Promigence."
  parent_image     = var.parent_image == null ? data.aws_ssm_parameter.debian.insecure_value : var.parent_image
  version          = "1.0.0"
  user_data_base64 = base64encode(local.begin)
  ami_tags         = local.image_tags
  tags             = local.tags

  component {
    component_arn = aws_imagebuilder_component.this.arn
  }

  # An operator's sessions need it at run time too.
  systems_manager_agent {
    uninstall_after_build = false
  }

  # By the account's own key: instances encrypt their disks anew, with the deployment's.
  block_device_mapping {
    device_name = "/dev/xvda"

    ebs {
      delete_on_termination = true
      encrypted             = true
      volume_size           = var.disk_gib
      volume_type           = "gp3"
    }
  }

  lifecycle {
    create_before_destroy = true
    # Debian makes a new image every few weeks: the next release is made from that, and no apply before it is about it.
    ignore_changes = [parent_image]
  }
}

resource "aws_imagebuilder_infrastructure_configuration" "this" {
  name                          = local.name
  description                   = "Where images of Promigence ${var.deployment} are made."
  instance_profile_name         = var.builder_profile
  instance_types                = var.builder_types
  subnet_id                     = var.builder_subnet_id
  security_group_ids            = var.builder_security_group_ids
  terminate_instance_on_failure = true
  resource_tags                 = local.image_tags
  tags                          = local.tags

  instance_metadata_options {
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_imagebuilder_distribution_configuration" "this" {
  name        = local.name
  description = "The image stays in its own account and region."
  tags        = local.tags

  distribution {
    region = data.aws_region.this.region

    ami_distribution_configuration {
      name     = "${local.name}-{{ imagebuilder:buildDate }}"
      ami_tags = local.image_tags
    }
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_imagebuilder_image_pipeline" "this" {
  name                             = local.name
  description                      = "Makes the image of release ${var.release} when it is started."
  image_recipe_arn                 = aws_imagebuilder_image_recipe.this.arn
  infrastructure_configuration_arn = aws_imagebuilder_infrastructure_configuration.this.arn
  distribution_configuration_arn   = aws_imagebuilder_distribution_configuration.this.arn
  enhanced_image_metadata_enabled  = true
  tags                             = local.tags

  image_tests_configuration {
    image_tests_enabled = true
    timeout_minutes     = 60
  }

  lifecycle {
    create_before_destroy = true
  }
}
