# Not mocked: a mock has no ephemeral resources.

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

run "with_an_image_all_of_it_runs" {
  variables {
    image_id       = "ami-0123456789abcdef0"
    release        = "0.1.0-0123456789ab"
    release_sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
  }

  assert {
    condition     = output.publish == "aws s3 cp dist/promigence-0.1.0-0123456789ab.tar.gz s3://${output.bucket}/releases/promigence-0.1.0-0123456789ab.tar.gz"
    error_message = output.publish
  }

  assert {
    condition     = strcontains(output.bake, "imagebuilder-image-pipeline") && strcontains(output.baked, "imagebuilder-image-pipeline")
    error_message = output.bake
  }

  assert {
    condition     = output.url == "https://promigence.example.com" && output.flower_url == "https://flower.promigence.example.com"
    error_message = output.url
  }

  assert {
    condition     = output.load_balancer != null
    error_message = "Records have nothing to lead to."
  }

  assert {
    condition     = strcontains(output.first_key, "promigence-admin keys create") && strcontains(output.first_key, "promigence-trial-control")
    error_message = output.first_key
  }

  assert {
    condition     = output.group_name == "promigence-trial-host"
    error_message = output.group_name
  }

  assert {
    condition     = module.hosts[0].group_name == output.group_name
    error_message = "The billing worker moves another group than hosts are in."
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
