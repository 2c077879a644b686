"""The composition root: wires the apps together; imports everything and is imported by nothing."""

from config.celery_app import app as celery_app

__all__ = ("celery_app",)
