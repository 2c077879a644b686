"""A Celery broker over object storage: in memory, in a folder, or in a bucket."""
