# Not mocked: a mock has no ephemeral resources. With an image it is tested by its roots, below envs/.

variables {
  deployment      = "trial"
  zones           = ["us-east-1a", "us-east-1b"]
  client_cidrs    = ["10.0.0.0/8"]
  certificate_arn = "arn:aws:acm:us-east-1:111122223333:certificate/00000000-0000-0000-0000-000000000000"
  api_host        = "promigence.example.com"
  flower_host     = "flower.promigence.example.com"
  instance_types  = ["m8i.4xlarge"]
  fleet_max       = 4
}

run "before_there_is_an_image_nothing_runs" {
  assert {
    condition     = output.load_balancer == null && output.first_key == null && output.bake == null
    error_message = "Instances are started of an image that is not there."
  }

  assert {
    condition     = output.bucket != null && output.publish == null
    error_message = "There is no bucket to publish a release to."
  }

  assert {
    condition     = output.network.vpc_id != null && length(output.network.route_table_ids) == 2
    error_message = "Nothing to attach a network of one's own to."
  }
}

run "two_names_somebody_to_ask_and_a_sum_to_check_by" {
  command         = plan
  expect_failures = [var.flower_host, var.client_cidrs, var.release_sha256]

  variables {
    flower_host    = "promigence.example.com"
    client_cidrs   = []
    release        = "0.1.0-0123456789ab"
    release_sha256 = "unknown"
  }
}
