"""The admin site: every registered model, ours or a library's, hides secrets and records its actions."""

from typing import Any

from django.contrib import admin

from ami.queues.admin_site.audited_actions import AuditedActions
from ami.queues.admin_site.checked_values import CheckedValues
from ami.queues.admin_site.hidden_secrets import HiddenSecrets


class AdminSite(admin.AdminSite):
    """Django's, with `CheckedValues`, `HiddenSecrets` and `AuditedActions` in front of every model admin.

    The applications' ``admin`` modules are imported when somebody asks what is registered: web and ``check`` do, a
    worker, beat and most commands never do.
    """

    _is_discovered = _is_registering = False

    @property
    def _registry(self) -> dict[Any, Any]:
        if not (self._is_discovered or self._is_registering):
            self._is_discovered = True
            admin.autodiscover()
        return self._registered

    @_registry.setter
    def _registry(self, registered: dict[Any, Any]) -> None:
        self._registered = registered

    def register(self, model_or_iterable: Any, admin_class: Any = None, **options: Any) -> None:
        """Register models as Django does, behind the mixins."""
        base: Any = admin_class or admin.ModelAdmin
        mixins = (CheckedValues, HiddenSecrets, AuditedActions)
        guarded = type(base)(base.__name__, (*mixins, base), {"__module__": base.__module__})
        # A module that is imported by itself registers its own models, and may be imported by half.
        before, self._is_registering = self._is_registering, True
        try:
            super().register(model_or_iterable, guarded, **options)
        finally:
            self._is_registering = before
