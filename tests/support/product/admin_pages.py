"""The models that the admin shows, and the addresses of their pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from django.contrib import admin
from django.urls import reverse

MODELS = sorted(admin.site._registry, key=lambda model: model._meta.label)


def address(model, page, *args):
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


@contextmanager
def one_list_of_apps() -> Iterator[None]:
    """Let one person's pages share the list of apps, which Django builds for each page from every model.

    That list is the same beside every page, so it is left out here.
    """
    built: dict[str | None, list] = {}
    build = admin.site.get_app_list

    def get_app_list(request, app_label=None):
        if app_label not in built:
            built[app_label] = build(request, app_label)
        return built[app_label]

    with (
        mock.patch.object(admin.site, "get_app_list", get_app_list),
        mock.patch.object(admin.site, "enable_nav_sidebar", False),
    ):
        yield
