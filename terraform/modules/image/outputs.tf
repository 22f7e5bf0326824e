output "pipeline_arn" {
  description = "Start it to make the image: aws imagebuilder start-image-pipeline-execution --image-pipeline-arn ..."
  value       = aws_imagebuilder_image_pipeline.this.arn
}

output "release_url" {
  description = "Where the pipeline finds the release: copy the archive there first."
  value       = "s3://${var.bucket}/${var.releases_prefix}/promigence-${var.release}.tar.gz"
}

output "recipe" {
  description = "The recipe's name: another one for anything that makes another image."
  value       = aws_imagebuilder_image_recipe.this.name
}
