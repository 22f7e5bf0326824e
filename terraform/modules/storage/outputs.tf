output "bucket" {
  description = "The bucket's name."
  value       = aws_s3_bucket.this.id
}

output "bucket_arn" {
  description = "For policies of who reads and writes it."
  value       = aws_s3_bucket.this.arn
}

output "blobs_url" {
  description = "Value of the setting `blobs` (PROMIGENCE_BLOBS) of the control plane and of hosts."
  value       = "s3://${aws_s3_bucket.this.id}/blobs"
}

output "blobs_prefix" {
  description = "Below it lie the files; policies name it."
  value       = "blobs"
}

output "releases_prefix" {
  description = "Below it lie releases of the server, which instances only read."
  value       = "releases"
}
