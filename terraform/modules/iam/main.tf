# Who may do what: the control plane, the hosts, and the machine that an image is made on. Each action below is one that
# the product's code calls or that an agent of Amazon's on the instance needs; a test compares them both ways.

data "aws_partition" "this" {}
data "aws_region" "this" {}
data "aws_caller_identity" "this" {}

locals {
  name    = "promigence-${var.deployment}"
  ec2     = "arn:${data.aws_partition.this.partition}:ec2:${data.aws_region.this.region}"
  account = data.aws_caller_identity.this.account_id
  # An ARN of a snapshot has no account in it.
  volumes   = "${local.ec2}:${local.account}:volume/*"
  snapshots = "${local.ec2}::snapshot/*"
  instances = "${local.ec2}:${local.account}:instance/*"
  group     = "arn:${data.aws_partition.this.partition}:autoscaling:${data.aws_region.this.region}:${local.account}:autoScalingGroup:*:autoScalingGroupName/${var.group_name}"
  secrets   = "arn:${data.aws_partition.this.partition}:secretsmanager:${data.aws_region.this.region}:${local.account}:secret:promigence/${var.deployment}"
  # A user's id has 40 characters, so the deployment is in it by eight of its hash, as infra/aws/cache_users.py makes it.
  cache       = "arn:${data.aws_partition.this.partition}:elasticache:${data.aws_region.this.region}:${local.account}"
  cache_users = "${local.cache}:user:pmg-${substr(sha256(var.deployment), 0, 8)}-*"
  cache_group = "${local.cache}:usergroup:${local.name}"
  logs        = "arn:${data.aws_partition.this.partition}:logs:${data.aws_region.this.region}:${local.account}:log-group:/promigence/${var.deployment}/*"

  ours       = { StringEquals = { "aws:ResourceTag/promigence:deployment" = var.deployment } }
  made_ours  = { StringEquals = { "aws:RequestTag/promigence:deployment" = var.deployment } }
  via_ec2    = { StringEquals = { "kms:ViaService" = "ec2.${data.aws_region.this.region}.amazonaws.com" } }
  via_secret = { StringEquals = { "kms:ViaService" = "secretsmanager.${data.aws_region.this.region}.amazonaws.com" } }
  via_bucket = { StringEquals = { "kms:ViaService" = "s3.${data.aws_region.this.region}.amazonaws.com" } }
  # The instance that asks is the one that is asked about.
  itself = { ArnEquals = { "ec2:SourceInstanceARN" = "${local.ec2}:${local.account}:instance/$${ec2:InstanceID}" } }

  ec2_may_assume = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.${data.aws_partition.this.dns_suffix}" }
    }]
  })

  # What both need: files in the bucket, their logs, and a session of an operator's by the session manager.
  shared = [
    {
      Sid      = "FilesAndOutputs"
      Effect   = "Allow"
      Action   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
      Resource = "${var.bucket_arn}/${var.blobs_prefix}/*"
    },
    {
      # Without a condition on prefixes: to who may not list, S3 says 403 of an object that is not there, and not 404.
      Sid      = "ListOfFiles"
      Effect   = "Allow"
      Action   = ["s3:ListBucket"]
      Resource = var.bucket_arn
    },
    {
      Sid      = "ListOfUploads"
      Effect   = "Allow"
      Action   = ["s3:ListBucketMultipartUploads"]
      Resource = var.bucket_arn
    },
    {
      Sid       = "KeyOfFiles"
      Effect    = "Allow"
      Action    = ["kms:Decrypt", "kms:GenerateDataKey"]
      Resource  = var.kms_key_arn
      Condition = local.via_bucket
    },
    {
      Sid       = "KeyOfSecrets"
      Effect    = "Allow"
      Action    = ["kms:Decrypt"]
      Resource  = var.kms_key_arn
      Condition = local.via_secret
    },
    {
      Sid      = "Logs"
      Effect   = "Allow"
      Action   = ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
      Resource = local.logs
    },
    {
      Sid    = "SessionsOfOperators"
      Effect = "Allow"
      Action = [
        "ssm:UpdateInstanceInformation",
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel",
      ]
      Resource = "*"
    },
  ]

  hosts = [
    {
      # AWS lets nobody limit these two to resources.
      Sid      = "Look"
      Effect   = "Allow"
      Action   = ["ec2:DescribeVolumes", "ec2:DescribeSnapshots"]
      Resource = "*"
    },
    {
      Sid       = "MakeVolumes"
      Effect    = "Allow"
      Action    = ["ec2:CreateVolume"]
      Resource  = local.volumes
      Condition = merge(local.made_ours, { Bool = { "ec2:Encrypted" = "true" } })
    },
    {
      Sid       = "OfOurSnapshots"
      Effect    = "Allow"
      Action    = ["ec2:CreateVolume", "ec2:DeleteSnapshot"]
      Resource  = local.snapshots
      Condition = local.ours
    },
    {
      Sid       = "MakeSnapshots"
      Effect    = "Allow"
      Action    = ["ec2:CreateSnapshot"]
      Resource  = local.snapshots
      Condition = local.made_ours
    },
    {
      Sid       = "OurVolumes"
      Effect    = "Allow"
      Action    = ["ec2:CreateSnapshot", "ec2:AttachVolume", "ec2:DetachVolume", "ec2:DeleteVolume", "ec2:ModifyInstanceAttribute"]
      Resource  = local.volumes
      Condition = local.ours
    },
    {
      Sid       = "OnlyToItself"
      Effect    = "Allow"
      Action    = ["ec2:AttachVolume", "ec2:DetachVolume", "ec2:ModifyInstanceAttribute"]
      Resource  = local.instances
      Condition = local.itself
    },
    {
      Sid      = "TagWhatIsMade"
      Effect   = "Allow"
      Action   = ["ec2:CreateTags"]
      Resource = [local.volumes, local.snapshots]
      Condition = {
        StringEquals = {
          "ec2:CreateAction"                     = ["CreateVolume", "CreateSnapshot"]
          "aws:RequestTag/promigence:deployment" = var.deployment
        }
      }
    },
    {
      Sid       = "KeyOfVolumes"
      Effect    = "Allow"
      Action    = ["kms:DescribeKey", "kms:Decrypt", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"]
      Resource  = var.kms_key_arn
      Condition = local.via_ec2
    },
    {
      Sid       = "GrantForVolumes"
      Effect    = "Allow"
      Action    = ["kms:CreateGrant"]
      Resource  = var.kms_key_arn
      Condition = merge(local.via_ec2, { Bool = { "kms:GrantIsForAWSResource" = "true" } })
    },
    {
      # The control plane tags each host's secret with the ARN of its instance.
      Sid       = "ItsOwnLogin"
      Effect    = "Allow"
      Action    = ["secretsmanager:GetSecretValue"]
      Resource  = "${local.secrets}/host/*"
      Condition = { StringEquals = { "aws:ResourceTag/promigence:instance" = "$${ec2:SourceInstanceARN}" } }
    },
  ]

  control = [
    {
      Sid      = "Look"
      Effect   = "Allow"
      Action   = ["ec2:DescribeVolumes", "ec2:DescribeSnapshots", "ec2:DescribeInstances", "autoscaling:DescribeAutoScalingGroups"]
      Resource = "*"
    },
    {
      Sid       = "RemoveWhatNobodyOwns"
      Effect    = "Allow"
      Action    = ["ec2:DetachVolume", "ec2:DeleteVolume", "ec2:DeleteSnapshot"]
      Resource  = [local.volumes, local.snapshots, local.instances]
      Condition = local.ours
    },
    {
      Sid    = "TheFleetOfHosts"
      Effect = "Allow"
      Action = [
        "autoscaling:SetDesiredCapacity",
        "autoscaling:SetInstanceProtection",
        "autoscaling:TerminateInstanceInAutoScalingGroup",
      ]
      Resource = local.group
    },
    {
      Sid      = "ItsOwnSecret"
      Effect   = "Allow"
      Action   = ["secretsmanager:GetSecretValue"]
      Resource = "${local.secrets}/control-*"
    },
    {
      # Who has a login is read off the names; AWS has no narrower right to lists.
      Sid    = "WhoHasALogin"
      Effect = "Allow"
      Action = [
        "secretsmanager:ListSecrets",
        "elasticache:DescribeUsers",
        "elasticache:DescribeUserGroups",
      ]
      Resource = "*"
    },
    {
      Sid       = "MakeLogins"
      Effect    = "Allow"
      Action    = ["secretsmanager:CreateSecret", "secretsmanager:TagResource"]
      Resource  = "${local.secrets}/host/*"
      Condition = local.made_ours
    },
    {
      Sid       = "LoginsOfHosts"
      Effect    = "Allow"
      Action    = ["secretsmanager:PutSecretValue", "secretsmanager:DeleteSecret"]
      Resource  = "${local.secrets}/host/*"
      Condition = local.ours
    },
    {
      Sid       = "KeyOfLogins"
      Effect    = "Allow"
      Action    = ["kms:GenerateDataKey"]
      Resource  = var.kms_key_arn
      Condition = local.via_secret
    },
    {
      Sid      = "UsersOfHosts"
      Effect   = "Allow"
      Action   = ["elasticache:CreateUser", "elasticache:ModifyUser", "elasticache:DeleteUser", "elasticache:AddTagsToResource"]
      Resource = local.cache_users
    },
    {
      Sid      = "LetThemIn"
      Effect   = "Allow"
      Action   = ["elasticache:ModifyUserGroup"]
      Resource = [local.cache_group, local.cache_users]
    },
  ]
}

resource "aws_iam_role" "host" {
  name                 = "${local.name}-host"
  description          = "Hosts of Promigence ${var.deployment}: volumes and snapshots with its tag, and their own logins."
  assume_role_policy   = local.ec2_may_assume
  permissions_boundary = var.permissions_boundary

  tags = { "promigence:deployment" = var.deployment }
}

resource "aws_iam_role_policy" "host" {
  name   = "host"
  role   = aws_iam_role.host.id
  policy = jsonencode({ Version = "2012-10-17", Statement = concat(local.shared, local.hosts) })
}

resource "aws_iam_instance_profile" "host" {
  name = "${local.name}-host"
  role = aws_iam_role.host.name

  tags = { "promigence:deployment" = var.deployment }
}

resource "aws_iam_role" "control" {
  name                 = "${local.name}-control"
  description          = "API, billing and Flower of Promigence ${var.deployment}: its group of hosts, their logins, and what they leave behind."
  assume_role_policy   = local.ec2_may_assume
  permissions_boundary = var.permissions_boundary

  tags = { "promigence:deployment" = var.deployment }
}

resource "aws_iam_role_policy" "control" {
  name   = "control"
  role   = aws_iam_role.control.id
  policy = jsonencode({ Version = "2012-10-17", Statement = concat(local.shared, local.control) })
}

resource "aws_iam_instance_profile" "control" {
  name = "${local.name}-control"
  role = aws_iam_role.control.name

  tags = { "promigence:deployment" = var.deployment }
}

# The machine on which an image is made has the internet, so it is given nothing of the deployment but the release.
resource "aws_iam_role" "builder" {
  name                 = "${local.name}-builder"
  description          = "The machine on which an image of Promigence ${var.deployment} is made."
  assume_role_policy   = local.ec2_may_assume
  permissions_boundary = var.permissions_boundary

  tags = { "promigence:deployment" = var.deployment }
}

resource "aws_iam_role_policy_attachment" "builder" {
  for_each = toset(["EC2InstanceProfileForImageBuilder", "AmazonSSMManagedInstanceCore"])

  role       = aws_iam_role.builder.name
  policy_arn = "arn:${data.aws_partition.this.partition}:iam::aws:policy/${each.key}"
}

resource "aws_iam_role_policy" "builder" {
  name = "release"
  role = aws_iam_role.builder.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "Release"
        Effect   = "Allow"
        Action   = ["s3:GetObject"]
        Resource = "${var.bucket_arn}/${var.releases_prefix}/*"
      },
      {
        Sid       = "KeyOfRelease"
        Effect    = "Allow"
        Action    = ["kms:Decrypt"]
        Resource  = var.kms_key_arn
        Condition = local.via_bucket
      },
    ]
  })
}

resource "aws_iam_instance_profile" "builder" {
  name = "${local.name}-builder"
  role = aws_iam_role.builder.name

  tags = { "promigence:deployment" = var.deployment }
}

# An Auto Scaling group starts instances by a role of its own, which must be able to use the key of their disks.
resource "aws_kms_grant" "group" {
  name              = "${local.name}-groups"
  key_id            = var.kms_key_arn
  grantee_principal = "arn:${data.aws_partition.this.partition}:iam::${local.account}:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"

  operations = [
    "CreateGrant",
    "Decrypt",
    "DescribeKey",
    "Encrypt",
    "GenerateDataKey",
    "GenerateDataKeyWithoutPlaintext",
    "ReEncryptFrom",
    "ReEncryptTo",
  ]
}
