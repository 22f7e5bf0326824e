mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { region = "us-east-1" }
  }

  mock_data "aws_caller_identity" {
    defaults = { account_id = "111122223333" }
  }
}

variables {
  deployment   = "trial"
  zones        = ["us-east-1a", "us-east-1b"]
  client_cidrs = ["203.0.113.0/24"]
}

run "closed_by_default" {
  assert {
    condition     = length(aws_internet_gateway.this) == 0 && length(aws_subnet.public) == 0 && length(aws_nat_gateway.this) == 0
    error_message = "There is a way to the internet though nobody asked for one."
  }

  assert {
    condition     = alltrue([for subnet in aws_subnet.private : subnet.map_public_ip_on_launch != true])
    error_message = "Instances in private subnets get public addresses."
  }

  assert {
    condition     = [for rule in aws_vpc_security_group_ingress_rule.clients : rule.cidr_ipv4] == ["203.0.113.0/24"]
    error_message = "The load balancer is open to others than the clients."
  }

  assert {
    condition     = alltrue([for rule in aws_vpc_security_group_ingress_rule.link : rule.cidr_ipv4 == null])
    error_message = "Something else than the load balancer is open to addresses, not to a role."
  }

  assert {
    condition     = length(aws_vpc_security_group_egress_rule.internet) == 0 && length(aws_vpc_security_group_egress_rule.runs) == 0
    error_message = "Instances may reach more than AWS."
  }

  assert {
    condition     = length(output.private_subnet_ids) == 2 && length(output.public_subnet_ids) == 0
    error_message = "One private subnet in each zone, and none that is public."
  }
}

run "who_reaches_whom" {
  assert {
    condition     = !contains([for link in local.links : link.to], "host")
    error_message = "Somebody may open a connection to a host."
  }

  assert {
    condition     = !anytrue([for link in local.links : contains(["database", "redis", "endpoints"], link.from)])
    error_message = "A store opens connections."
  }

  assert {
    condition     = sort([for link in local.links : link.to if link.from == "host"]) == tolist(["database", "endpoints", "redis"])
    error_message = "A host reaches something else than database, Redis and endpoints."
  }

  assert {
    condition = alltrue([
      for name, link in local.links :
      aws_vpc_security_group_ingress_rule.link[name].from_port == link.port &&
      aws_vpc_security_group_egress_rule.link[name].to_port == link.port
    ])
    error_message = "The two ends of a link differ."
  }
}

run "endpoints_serve_this_account_only" {
  assert {
    condition = alltrue([
      for endpoint in concat(values(aws_vpc_endpoint.interface), [aws_vpc_endpoint.s3]) :
      jsondecode(endpoint.policy).Statement[0].Condition.StringEquals["aws:PrincipalAccount"] == "111122223333"
    ])
    error_message = "An endpoint serves identities of other accounts."
  }

  assert {
    condition     = jsondecode(aws_vpc_endpoint.s3.policy).Statement[0].Condition.StringEquals["aws:ResourceAccount"] == "111122223333"
    error_message = "Buckets of other accounts can be written through the endpoint."
  }

  assert {
    condition     = aws_vpc_endpoint.interface["secretsmanager"].service_name == "com.amazonaws.us-east-1.secretsmanager"
    error_message = "No endpoint for secrets, and so no credentials on an instance."
  }
}

run "internet_and_nat_when_asked_for" {
  variables {
    internet_facing = true
    nat             = true
    zones           = ["us-east-1a", "us-east-1b", "us-east-1c"]
    endpoint_zones  = 1
  }

  assert {
    condition     = length(output.public_subnet_ids) == 3 && length(aws_nat_gateway.this) == 1 && length(aws_route.nat) == 3
    error_message = "Public subnets in three zones, and one NAT gateway for all."
  }

  assert {
    condition     = length(aws_vpc_endpoint.interface["ec2"].subnet_ids) == 1
    error_message = "Endpoints in more zones than are paid for."
  }

  assert {
    condition = length(distinct([
      for cidr in concat(values(local.private_cidrs), values(local.public_cidrs)) : cidr
    ])) == 6
    error_message = "Subnets share addresses."
  }
}

run "metadata_is_no_target_of_runs" {
  command         = plan
  expect_failures = [var.host_egress]

  variables {
    host_egress = [{ description = "metadata", cidr = "169.254.169.254/32", from_port = 80, to_port = 80 }]
  }
}

run "one_zone_is_refused" {
  command         = plan
  expect_failures = [var.zones]

  variables {
    zones = ["us-east-1a"]
  }
}
