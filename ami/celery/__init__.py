"""What subclasses or hooks Celery, one file per hook."""
