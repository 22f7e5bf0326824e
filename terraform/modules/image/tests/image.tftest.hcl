mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { region = "us-east-1" }
  }
  mock_data "aws_ssm_parameter" {
    defaults = { insecure_value = "ami-0123456789abcdef0" }
  }
}

variables {
  deployment      = "trial"
  release         = "0.1.0-0123456789ab"
  release_sha256  = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
  bucket          = "promigence-trial-1"
  builder_profile = "promigence-trial-builder"
}

run "what_is_installed_is_checked_against_what_was_named" {
  assert {
    condition = contains(
      flatten([for phase in yamldecode(aws_imagebuilder_component.this.data).phases : [for step in phase.steps : try(step.inputs.commands, [])] if phase.name == "build"]),
      "echo 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  /tmp/promigence.tar.gz' | sha256sum --check --strict",
    )
    error_message = "A release is installed without being checked."
  }

  assert {
    condition     = output.release_url == "s3://promigence-trial-1/releases/promigence-0.1.0-0123456789ab.tar.gz"
    error_message = "Not where `make release` says: ${output.release_url}"
  }
}

run "every_step_has_an_end" {
  assert {
    condition = alltrue(flatten([
      for phase in yamldecode(aws_imagebuilder_component.this.data).phases :
      [for step in phase.steps : try(step.timeoutSeconds > 0, false) if step.action == "ExecuteBash"]
    ]))
    error_message = "A command may hang for ever."
  }
}

run "the_image_is_never_taken_for_a_leak" {
  assert {
    condition     = !contains(keys(aws_imagebuilder_image_recipe.this.ami_tags), "promigence:deployment")
    error_message = "The image's snapshot has the tag by which the reaper finds what nobody owns."
  }

  assert {
    condition     = !contains(keys(aws_imagebuilder_infrastructure_configuration.this.resource_tags), "promigence:deployment")
    error_message = "The builder's volume has the tag by which the reaper finds what nobody owns."
  }
}

run "encrypted_and_only_imdsv2" {
  assert {
    condition     = alltrue([for disk in aws_imagebuilder_image_recipe.this.block_device_mapping : one(disk.ebs).encrypted == "true"])
    error_message = "The image's disk is not encrypted."
  }

  assert {
    condition     = one(aws_imagebuilder_infrastructure_configuration.this.instance_metadata_options).http_tokens == "required"
    error_message = "The builder answers to IMDSv1."
  }
}

run "another_release_is_another_recipe" {
  variables {
    release = "0.2.0-ffffffffffff"
  }

  assert {
    condition     = startswith(aws_imagebuilder_image_recipe.this.name, "promigence-trial-0-2-0-ffffffffffff-")
    error_message = "Two releases share a recipe."
  }
}

run "another_archive_of_a_release_is_another_recipe" {
  variables {
    release        = "0.2.0-ffffffffffff"
    release_sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
  }

  assert {
    condition = (
      aws_imagebuilder_image_recipe.this.name != run.another_release_is_another_recipe.recipe
      && aws_imagebuilder_image_recipe.this.name == aws_imagebuilder_component.this.name
    )
    error_message = "AWS refuses a second recipe, or component, of one name and version."
  }
}

run "a_newer_image_of_debians_changes_nothing_by_itself" {
  override_data {
    target = data.aws_ssm_parameter.debian
    values = { insecure_value = "ami-0fedcba9876543210" }
  }

  variables {
    release        = "0.2.0-ffffffffffff"
    release_sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
  }

  assert {
    condition     = aws_imagebuilder_image_recipe.this.parent_image == "ami-0123456789abcdef0"
    error_message = "The recipe would be replaced by one of the same name, which AWS refuses."
  }
}

run "the_builder_can_be_told_what_to_do" {
  assert {
    condition     = strcontains(base64decode(aws_imagebuilder_image_recipe.this.user_data_base64), "debian_amd64/amazon-ssm-agent.deb")
    error_message = "Debian's image has no agent of the session manager's."
  }
}

run "a_release_by_its_version_alone_is_refused" {
  command         = plan
  expect_failures = [var.release]

  variables {
    release = "0.1.0"
  }
}
