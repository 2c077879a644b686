"""Storages to give to a queue: in memory, in a local folder, on S3, on Google Cloud Storage."""
