"""The admin site: every registered model, ours or a library's, hides secrets and records its actions."""

from typing import Any

from django.contrib import admin

from ami.queues.admin_site.audited_actions import AuditedActions
from ami.queues.admin_site.checked_values import CheckedValues
from ami.queues.admin_site.hidden_secrets import HiddenSecrets


class AdminSite(admin.AdminSite):
    """Django's, with `CheckedValues`, `HiddenSecrets` and `AuditedActions` in front of every model admin."""

    def register(self, model_or_iterable: Any, admin_class: Any = None, **options: Any) -> None:
        """Register models as Django does, behind the mixins."""
        base: Any = admin_class or admin.ModelAdmin
        mixins = (CheckedValues, HiddenSecrets, AuditedActions)
        guarded = type(base)(base.__name__, (*mixins, base), {"__module__": base.__module__})
        super().register(model_or_iterable, guarded, **options)
