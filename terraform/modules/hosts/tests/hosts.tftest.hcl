mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { region = "us-east-1" }
  }
  mock_resource "aws_launch_template" {
    defaults = { id = "lt-0123456789abcdef0", latest_version = 3 }
  }
}

variables {
  deployment        = "trial"
  image_id          = "ami-0123456789abcdef0"
  group_name        = "promigence-trial-host"
  subnet_ids        = ["subnet-1", "subnet-2"]
  security_group_id = "sg-1"
  profile_arn       = "arn:aws:iam::111122223333:instance-profile/promigence-trial-host"
  kms_key_arn       = "arn:aws:kms:us-east-1:111122223333:key/00000000-0000-0000-0000-000000000000"
  blobs_url         = "s3://promigence-trial-1/blobs"
  forbidden_cidrs   = ["10.40.0.0/16"]
}

run "machines_are_nested" {
  assert {
    condition     = one(aws_launch_template.this.cpu_options).nested_virtualization == "enabled"
    error_message = "Without nested virtualisation there is no KVM on such an instance."
  }
}

run "on_metal_nothing_is" {
  variables {
    instance_types = ["m8i.metal-48xl", "c5.metal"]
  }

  assert {
    condition     = length(aws_launch_template.this.cpu_options) == 0
    error_message = "Metal refuses that option."
  }
}

run "a_guest_cannot_ask_for_credentials" {
  assert {
    condition = (
      one(aws_launch_template.this.metadata_options).http_tokens == "required"
      && one(aws_launch_template.this.metadata_options).http_put_response_hop_limit == 1
    )
    error_message = "IMDSv1, or a second hop, is let through."
  }

  assert {
    condition     = one(aws_launch_template.this.network_interfaces).associate_public_ip_address == "false"
    error_message = "A host has a public address."
  }

  assert {
    condition = (
      one(one(aws_launch_template.this.block_device_mappings).ebs).encrypted == "true"
      && one(one(aws_launch_template.this.block_device_mappings).ebs).kms_key_id == var.kms_key_arn
    )
    error_message = "A host's disk is not encrypted with the deployment's key."
  }
}

run "only_the_billing_worker_ends_hosts" {
  assert {
    condition     = aws_autoscaling_group.this.protect_from_scale_in && contains(aws_autoscaling_group.this.suspended_processes, "AZRebalance") && !aws_autoscaling_group.this.capacity_rebalance
    error_message = "The group ends hosts that have forks on them."
  }

  assert {
    condition = (
      aws_autoscaling_lifecycle_hook.drain.autoscaling_group_name == var.group_name
      && aws_autoscaling_lifecycle_hook.drain.lifecycle_transition == "autoscaling:EC2_INSTANCE_TERMINATING"
      && aws_autoscaling_lifecycle_hook.drain.heartbeat_timeout == 3600
    )
    error_message = "An instance that is to end has no time to drain."
  }

  assert {
    condition     = aws_autoscaling_group.this.name == var.group_name
    error_message = "The billing worker looks for another group."
  }
}

run "spot_beyond_the_base" {
  variables {
    spot_percent   = 80
    on_demand_base = 2
  }

  assert {
    condition = (
      one(one(aws_autoscaling_group.this.mixed_instances_policy).instances_distribution).on_demand_percentage_above_base_capacity == 20
      && one(one(aws_autoscaling_group.this.mixed_instances_policy).instances_distribution).on_demand_base_capacity == 2
    )
    error_message = "Not the mix that was asked for."
  }
}

run "no_disk_is_taken_for_a_leak" {
  assert {
    condition = alltrue([
      for each in aws_launch_template.this.tag_specifications :
      !contains(keys(each.tags), "promigence:deployment") if each.resource_type == "volume"
    ])
    error_message = "A host's own disk has the tag by which the reaper finds what nobody owns."
  }
}

run "what_its_start_says" {
  variables {
    egress_allow = ["policy.example.com:8443"]
  }

  assert {
    condition     = strcontains(base64decode(aws_launch_template.this.user_data), "\nPROMIGENCE_EGRESS_ALLOW=[\"policy.example.com:8443\"]\n")
    error_message = base64decode(aws_launch_template.this.user_data)
  }

  assert {
    condition     = endswith(base64decode(aws_launch_template.this.user_data), "begin host --forbid '10.40.0.0/16'\n")
    error_message = base64decode(aws_launch_template.this.user_data)
  }
}

run "types_without_kvm_are_refused" {
  command         = plan
  expect_failures = [var.instance_types]

  variables {
    instance_types = ["m7i.4xlarge"]
  }
}

run "metal_and_nested_do_not_mix" {
  command         = plan
  expect_failures = [var.instance_types]

  variables {
    instance_types = ["m8i.4xlarge", "m8i.metal-48xl"]
  }
}

run "a_dialler_without_bounds_is_refused" {
  command         = plan
  expect_failures = [var.forbidden_cidrs]

  variables {
    forbidden_cidrs = []
  }
}

run "a_setting_of_two_lines_is_refused" {
  command         = plan
  expect_failures = [var.settings]

  variables {
    settings = { PROMIGENCE_LOG_LEVEL = "info\nEND\nreboot" }
  }
}
