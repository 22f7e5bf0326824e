output "url" {
  description = "Where the API is: PROMIGENCE_BASE_URL of its clients."
  value       = "https://${var.api_host}"
}

output "flower_url" {
  description = "Where Flower is. It asks for the user promigence and the password in the control secret."
  value       = "https://${var.flower_host}"
}

output "load_balancer" {
  description = "What records of both names lead to; null until there is an image."
  value       = local.runs ? module.control[0].load_balancer_dns_name : null
}

output "first_key" {
  description = "Two commands: one opens a session on an instance of the control plane, the other makes a key there and shows it once."
  value = !local.runs ? null : join("\n", [
    "aws ssm start-session --target $(aws autoscaling describe-auto-scaling-groups --auto-scaling-group-names ${module.control[0].group_name} --query 'AutoScalingGroups[0].Instances[?HealthStatus==`Healthy`]|[0].InstanceId' --output text)",
    "promigence-admin keys create NAME",
  ])
}

output "publish" {
  description = "Copies a release to where the pipeline looks for it; null until `release` names one."
  value       = var.release == null ? null : "aws s3 cp dist/promigence-${var.release}.tar.gz ${module.image[0].release_url}"
}

output "bake" {
  description = "Makes the image, which takes about half an hour; null until `release` names one."
  value       = var.release == null ? null : "aws imagebuilder start-image-pipeline-execution --image-pipeline-arn ${module.image[0].pipeline_arn}"
}

output "baked" {
  description = "The image's id, when it is made: the value of `image_id`."
  value       = var.release == null ? null : "aws imagebuilder list-image-pipeline-images --image-pipeline-arn ${module.image[0].pipeline_arn} --query 'sort_by(imageSummaryList[?state.status==`AVAILABLE`], &dateCreated)[-1].outputResources.amis[0].image' --output text"
}

output "control_secret" {
  description = "Name of the secret that the control plane logs in with; Flower's password is in it."
  value       = module.secrets.control_secret_name
}

output "bucket" {
  description = "The bucket of files, outputs and releases."
  value       = module.storage.bucket
}

output "group_name" {
  description = "The Auto Scaling group of hosts."
  value       = local.group_name
}

output "alarm_topic" {
  description = "The topic that alarms are told to."
  value       = module.monitoring.topic_arn
}

output "network" {
  description = "What your peering or transit gateway attaches to, and the tables that its routes go into."
  value       = { vpc_id = module.network.vpc_id, route_table_ids = module.network.private_route_table_ids }
}
