# Not mocked: a mock has no ephemeral resources.

variables {
  region          = "us-east-1"
  deployment      = "trial"
  zones           = ["us-east-1a", "us-east-1b"]
  client_cidrs    = ["10.0.0.0/8"]
  certificate_arn = "arn:aws:acm:us-east-1:111122223333:certificate/00000000-0000-0000-0000-000000000000"
  api_host        = "promigence.example.com"
  flower_host     = "flower.promigence.example.com"
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
}

run "with_an_image_all_of_it_runs" {
  variables {
    image_id = "ami-0123456789abcdef0"
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
}
