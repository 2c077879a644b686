"""The abstract base of the product's models: creation and update times."""

from typing import Any

from django.db import models


class TimestampedModel(models.Model):
    """``created_at`` and ``updated_at``; the latter is also set by ``save(update_fields=[...])`` (incident 43)."""

    created_at = models.DateTimeField(auto_now_add=True, editable=False)
    updated_at = models.DateTimeField(auto_now=True, editable=False)

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save, with ``updated_at`` among the ``update_fields`` when there are any."""
        if kwargs.get("update_fields"):
            kwargs["update_fields"] = {*kwargs["update_fields"], "updated_at"}
        super().save(*args, **kwargs)
