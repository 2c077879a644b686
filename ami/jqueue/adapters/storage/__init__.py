"""Storages to give to a queue: in memory, on a local disk, on S3, on Google Cloud Storage."""
