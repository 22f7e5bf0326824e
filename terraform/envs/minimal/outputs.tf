output "url" {
  description = "Where the API is: PROMIGENCE_BASE_URL of its clients."
  value       = module.deployment.url
}

output "flower_url" {
  description = "Where Flower is. It asks for the user promigence and the password in the control secret."
  value       = module.deployment.flower_url
}

output "load_balancer" {
  description = "What records of both names lead to; null until there is an image."
  value       = module.deployment.load_balancer
}

output "first_key" {
  description = "Two commands: one opens a session on an instance of the control plane, the other makes a key there and shows it once."
  value       = module.deployment.first_key
}

output "publish" {
  description = "Copies a release to where the pipeline looks for it; null until `release` names one."
  value       = module.deployment.publish
}

output "bake" {
  description = "Makes the image, which takes about half an hour; null until `release` names one."
  value       = module.deployment.bake
}

output "baked" {
  description = "The image's id, when it is made: the value of `image_id`."
  value       = module.deployment.baked
}

output "control_secret" {
  description = "Name of the secret that the control plane logs in with; Flower's password is in it."
  value       = module.deployment.control_secret
}

output "bucket" {
  description = "The bucket of files, outputs and releases."
  value       = module.deployment.bucket
}

output "group_name" {
  description = "The Auto Scaling group of hosts."
  value       = module.deployment.group_name
}

output "alarm_topic" {
  description = "The topic that alarms are told to; whatever is to hear of them subscribes to it."
  value       = module.deployment.alarm_topic
}

output "network" {
  description = "What your peering or transit gateway attaches to, and the tables that its routes go into."
  value       = module.deployment.network
}
