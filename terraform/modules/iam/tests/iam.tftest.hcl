mock_provider "aws" {
  mock_data "aws_partition" {
    defaults = { partition = "aws", dns_suffix = "amazonaws.com" }
  }
  mock_data "aws_region" {
    defaults = { region = "us-east-1" }
  }
  mock_data "aws_caller_identity" {
    defaults = { account_id = "111122223333" }
  }
}

variables {
  deployment  = "trial"
  kms_key_arn = "arn:aws:kms:us-east-1:111122223333:key/00000000-0000-0000-0000-000000000000"
  bucket_arn  = "arn:aws:s3:::promigence-trial-1"
  group_name  = "promigence-trial-host"
}

run "a_host_touches_only_what_is_of_its_deployment" {
  assert {
    condition = alltrue([
      for statement in jsondecode(aws_iam_role_policy.host.policy).Statement :
      can(statement.Condition.StringEquals["aws:ResourceTag/promigence:deployment"])
      || can(statement.Condition.StringEquals["aws:RequestTag/promigence:deployment"])
      || can(statement.Condition.ArnEquals["ec2:SourceInstanceARN"])
      if anytrue([for action in statement.Action : startswith(action, "ec2:") && !startswith(action, "ec2:Describe")])
    ])
    error_message = "A host may change a volume, a snapshot or an instance of somebody else's."
  }

  assert {
    condition = alltrue([
      for statement in jsondecode(aws_iam_role_policy.host.policy).Statement :
      statement.Condition.ArnEquals["ec2:SourceInstanceARN"] == "arn:aws:ec2:us-east-1:111122223333:instance/$${ec2:InstanceID}"
      if statement.Resource == "arn:aws:ec2:us-east-1:111122223333:instance/*"
    ])
    error_message = "A host may attach to an instance that is not itself."
  }

  assert {
    condition = one([
      for statement in jsondecode(aws_iam_role_policy.host.policy).Statement :
      statement.Condition.Bool["ec2:Encrypted"] if statement.Sid == "MakeVolumes"
    ]) == "true"
    error_message = "A host may make a volume that is not encrypted."
  }
}

run "a_host_reads_its_own_login_and_no_other_secret" {
  assert {
    condition = [
      for statement in jsondecode(aws_iam_role_policy.host.policy).Statement :
      [statement.Resource, statement.Condition.StringEquals["aws:ResourceTag/promigence:instance"]]
      if anytrue([for action in statement.Action : startswith(action, "secretsmanager:")])
      ] == [[
        "arn:aws:secretsmanager:us-east-1:111122223333:secret:promigence/trial/host/*",
        "$${ec2:SourceInstanceARN}",
    ]]
    error_message = "A host reads secrets that are not its own."
  }

  assert {
    condition = alltrue([
      for statement in jsondecode(aws_iam_role_policy.host.policy).Statement :
      length(setintersection(statement.Action, ["iam:PassRole", "ec2:RunInstances", "autoscaling:SetDesiredCapacity"])) == 0
    ])
    error_message = "A host may start instances."
  }
}

run "the_control_plane_moves_one_group" {
  assert {
    condition = [
      for statement in jsondecode(aws_iam_role_policy.control.policy).Statement :
      statement.Resource if contains(statement.Action, "autoscaling:SetDesiredCapacity")
    ] == ["arn:aws:autoscaling:us-east-1:111122223333:autoScalingGroup:*:autoScalingGroupName/promigence-trial-host"]
    error_message = "The control plane may move other groups."
  }
}

run "nobody_may_do_everything" {
  assert {
    condition = alltrue(flatten([
      for policy in [aws_iam_role_policy.host.policy, aws_iam_role_policy.control.policy, aws_iam_role_policy.builder.policy] :
      [for statement in jsondecode(policy).Statement : [for action in statement.Action : !strcontains(action, "*")]]
    ]))
    error_message = "A policy has an action with a wildcard."
  }

  # What AWS limits to no resource is looking, and the agent's own channels.
  assert {
    condition = alltrue(flatten([
      for policy in [aws_iam_role_policy.host.policy, aws_iam_role_policy.control.policy] :
      [
        for statement in jsondecode(policy).Statement :
        [for action in statement.Action : strcontains(action, ":Describe") || startswith(action, "ssm") || strcontains(action, ":List")]
        if statement.Resource == "*"
      ]
    ]))
    error_message = "Something is allowed on every resource that could be limited."
  }
}

run "files_only_below_the_prefix" {
  assert {
    condition = alltrue(flatten([
      for policy in [aws_iam_role_policy.host.policy, aws_iam_role_policy.control.policy] :
      [
        for statement in jsondecode(policy).Statement :
        statement.Resource == "arn:aws:s3:::promigence-trial-1/blobs/*"
        if contains(statement.Action, "s3:PutObject")
      ]
    ]))
    error_message = "Whoever has taken a host over could replace a release."
  }
}

run "a_bucket_by_its_name_is_refused" {
  command         = plan
  expect_failures = [var.bucket_arn]

  variables {
    bucket_arn = "promigence-trial-1"
  }
}
