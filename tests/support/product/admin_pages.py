"""The models that the admin shows, and the addresses of their pages."""

from django.contrib import admin
from django.urls import reverse

MODELS = sorted(admin.site._registry, key=lambda model: model._meta.label)


def address(model, page, *args):
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)
