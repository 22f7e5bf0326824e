mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { region = "us-east-1" }
  }
  mock_data "aws_vpc" {
    defaults = { cidr_block = "10.20.0.0/16" }
  }
  mock_resource "aws_launch_template" {
    defaults = { id = "lt-0123456789abcdef0", latest_version = 3 }
  }
  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-east-1:111122223333:loadbalancer/app/pmg-trial/0123456789abcdef", dns_name = "internal-pmg-trial.us-east-1.elb.amazonaws.com" }
  }
  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-east-1:111122223333:targetgroup/pmg-trial-api/0123456789abcdef" }
  }
  mock_resource "aws_lb_listener" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-east-1:111122223333:listener/app/pmg-trial/0123456789abcdef/0123456789abcdef" }
  }
}

variables {
  deployment                      = "trial"
  image_id                        = "ami-0123456789abcdef0"
  vpc_id                          = "vpc-1"
  subnet_ids                      = ["subnet-1", "subnet-2"]
  load_balancer_subnet_ids        = ["subnet-1", "subnet-2"]
  security_group_id               = "sg-1"
  load_balancer_security_group_id = "sg-2"
  certificate_arn                 = "arn:aws:acm:us-east-1:111122223333:certificate/00000000-0000-0000-0000-000000000000"
  flower_host                     = "flower.promigence.example.com"
  profile_arn                     = "arn:aws:iam::111122223333:instance-profile/promigence-trial-control"
  kms_key_arn                     = "arn:aws:kms:us-east-1:111122223333:key/00000000-0000-0000-0000-000000000000"
  credentials_version             = 1
  blobs_url                       = "s3://promigence-trial-1/blobs"
  redis_user_group                = "promigence-trial"
  fleet                           = "promigence-trial-host"
  fleet_min                       = 1
  fleet_max                       = 4
}

run "only_https_and_only_inside" {
  assert {
    condition     = aws_lb_listener.this.port == 443 && aws_lb_listener.this.protocol == "HTTPS" && aws_lb_listener.this.certificate_arn == var.certificate_arn
    error_message = "A key could travel in the clear."
  }

  assert {
    condition     = aws_lb.this.internal && aws_lb.this.drop_invalid_header_fields && aws_lb.this.enable_deletion_protection
    error_message = "The load balancer is open to more than was asked for."
  }
}

run "an_instance_is_replaced_when_it_does_not_answer_and_for_nothing_else" {
  assert {
    condition     = one(aws_lb_target_group.this["api"].health_check).path == "/healthz" && aws_autoscaling_group.this.health_check_type == "ELB"
    error_message = "Without a host, or while the database is away, every instance would be replaced again and again."
  }

  assert {
    condition     = toset(aws_autoscaling_group.this.target_group_arns) == toset([for group in aws_lb_target_group.this : group.arn])
    error_message = "Instances are not behind the load balancer."
  }
}

run "the_longest_name_of_a_deployment_fits" {
  command = plan

  variables {
    deployment = "abcdefghijklmnopqrstuvwx"
  }

  assert {
    condition     = alltrue([for name in concat([aws_lb.this.name], [for group in aws_lb_target_group.this : group.name]) : length(name) <= 32])
    error_message = "Names of load balancers and target groups have 32 characters at most."
  }
}

run "flower_is_asked_by_its_name" {
  assert {
    condition     = anytrue([for condition in aws_lb_listener_rule.flower.condition : try(contains(one(condition.host_header).values, "flower.promigence.example.com"), false)])
    error_message = "Flower is not reached."
  }
}

run "metrics_stay_inside" {
  assert {
    condition     = one(aws_lb_listener_rule.metrics.action).type == "fixed-response" && aws_lb_listener_rule.metrics.priority < aws_lb_listener_rule.flower.priority
    error_message = "Who has the address of the API is told what it measures."
  }
}

run "only_imdsv2_and_encrypted" {
  assert {
    condition = (
      one(aws_launch_template.this.metadata_options).http_tokens == "required"
      && one(aws_launch_template.this.metadata_options).http_put_response_hop_limit == 1
      && one(one(aws_launch_template.this.block_device_mappings).ebs).encrypted == "true"
      && one(aws_launch_template.this.network_interfaces).associate_public_ip_address == "false"
    )
    error_message = "An instance is more open than it need be."
  }
}

run "what_its_start_says" {
  assert {
    condition = alltrue([
      for line in ["PROMIGENCE_FLEET=promigence-trial-host", "PROMIGENCE_FLEET_MIN=1", "PROMIGENCE_FLEET_MAX=4", "PROMIGENCE_BUNDLES=ebs", "PROMIGENCE_REDIS_USER_GROUP=promigence-trial", "PROMIGENCE_API_HOST=0.0.0.0", "PROMIGENCE_TRUSTED_PROXIES=[\"10.20.0.0/16\"]"] :
      strcontains(base64decode(aws_launch_template.this.user_data), "\n${line}\n")
    ])
    error_message = base64decode(aws_launch_template.this.user_data)
  }
}

run "a_listener_without_a_certificate_is_refused" {
  command         = plan
  expect_failures = [var.certificate_arn]

  variables {
    certificate_arn = ""
  }
}

run "other_passwords_replace_the_instances" {
  variables {
    credentials_version = 2
  }

  assert {
    condition = one([
      for each in aws_launch_template.this.tag_specifications : each.tags["promigence:credentials"] if each.resource_type == "instance"
    ]) == "2"
    error_message = "Instances go on with the passwords that they began with."
  }
}
