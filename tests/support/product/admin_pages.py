"""The models of the admin and the URLs of their pages."""

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
    """Build the list of apps once for one user's pages, and leave it out of the sidebar.

    Django builds it for each page from every model, though it is the same on every page.
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
