"""Roles x pages of the admin: lists with every filter, forms, actions, and what they do to other people's rows."""

import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.options import ModelAdmin
from django.db import models

from tests.attack import values
from tests.attack.access import changed, sample
from tests.attack.addresses import KEY, Address, admin_addresses
from tests.attack.client import Client, Request, Role
from tests.attack.people import People
from tests.attack.report import Report
from tests.attack.scenes import Scene

PART = "admin"
FORM = "application/x-www-form-urlencoded"
#: What would end a role's session, or its password.
LEFT_OUT = ("logout", "password_change", "/login/")
LIST_PARAMETERS = ("q", "o", "p", "e", "all", "_to_field", "_popup", "_changelist_filters")
IN_FORMS = ["", "x", "\x00", "-1", "9" * 30, "1e308", "0001-01-01", "[", '{"a": "\\ud800"}', '"\\ud800"', "a" * 5000]


def attack(client: Client, people: People, report: Report, chooser: random.Random, most: int) -> None:
    """Open every page as every role, and post to those with forms; who may change rows comes last."""
    from tests.support.product import admin_rows

    admin_rows.everything()
    before = people.victim.fingerprint()
    for name in ("anonymous", "owner", "staff", "superuser"):
        if name == "superuser":
            changed(PART, people.victim, before, report)
        role, target = people.admin[name], people.scenes[name] if name == "superuser" else people.victim
        if name in ("anonymous", "owner"):
            _closed(client, role, target, report)
        else:
            client.send_all(PART, role, opened(target))
        for requests in (odd_keys(), filters(), writing(target)):
            client.send_all(PART, role, sample(requests, most, chooser))
        if name == "superuser":
            client.send_all(PART, role, actions(target))


def key_of(address: Address, scene: Scene) -> Any:
    """Return a key for the address: the scene's row of its model, else any."""
    if address.model is None:
        return 1
    if isinstance(address.model._meta.pk, models.CharField):
        return "unknown"  # A key of text may be a secret itself.
    found = scene.key_of(address.model)
    if found is None:
        found = address.model._base_manager.values_list("pk", flat=True).order_by("pk").first()
    return 1 if found is None else found


def pages() -> Iterator[Address]:
    """Yield the pages that a role may open without ending its session."""
    for address in admin_addresses():
        if not any(part in address.path for part in LEFT_OUT) and address.path.count(KEY) < 2:
            yield address


def opened(scene: Scene) -> Iterator[Request]:
    """GET every page, with a row of the scene."""
    for address in pages():
        yield Request("GET", address.of(key_of(address, scene)))


def odd_keys() -> Iterator[Request]:
    """GET every page of a row with malformed keys."""
    for address in pages():
        if address.has_key:
            yield from (Request("GET", address.of(key)) for key in values.IN_KEYS)


def filters() -> Iterator[Request]:
    """GET every list with every filter and odd values, and the search of related rows."""
    for address in pages():
        if address.name.endswith("_changelist"):
            for name in (*LIST_PARAMETERS, *_lookups(address.model)):
                yield from (Request("GET", f"{address.path}?{name}={value}") for value in values.IN_QUERIES)
    for name in ("app_label", "model_name", "field_name", "term"):
        for value in ("main", "user", "password", "%00", "%ED%A0%80", "token"):
            yield Request(
                "GET", f"/admin/autocomplete/?app_label=jobs&model_name=job&field_name=project&{name}={value}"
            )


def _lookups(model: type[models.Model]) -> list[str]:
    """Return lookups on the model's columns and on the secrets behind its relations."""
    found = [f"{column.name}__exact" for column in model._meta.concrete_fields]
    found += [f"{column.name}__gte" for column in model._meta.concrete_fields]
    relations = [column.name for column in model._meta.concrete_fields if column.is_relation]
    return found + [f"{name}__password__startswith" for name in relations] + ["user__auth_token__key__startswith"]


def writing(scene: Scene) -> Iterator[Request]:
    """POST to every form of the admin, each field hostile in turn, and to every list's actions."""
    for address in pages():
        if address.model is not None and address.name.endswith(("_add", "_change")):
            yield Request("POST", address.of(key_of(address, scene)), b"", FORM)
            for body in form_bodies(admin.site._registry[address.model]):
                yield Request("POST", address.of(key_of(address, scene)), body, FORM)
        elif address.name.endswith("_delete"):
            yield Request("POST", address.of(key_of(address, scene)), b"post=no", FORM)
    yield from actions(scene)
    yield Request("POST", "/admin/main/project/", b"action=delete_selected&_selected_action=%00", FORM)
    yield Request("POST", "/admin/main/project/", b"action=nothing&_selected_action=9" + b"9" * 30, FORM)


def form_bodies(page: ModelAdmin) -> Iterator[bytes]:
    """Yield bodies in which one field of the form is hostile and the others are empty."""
    names = [column.name for column in page.model._meta.get_fields() if getattr(column, "editable", False)]
    for name in names:
        for value in IN_FORMS:
            yield urlencode({name: value, f"{name}_0": value, f"{name}_1": value}).encode()


def actions(scene: Scene) -> Iterator[Request]:
    """POST each action of each list over the scene's rows, confirmed and not."""
    for model, page in admin.site._registry.items():
        keys = scene.rows.get(model, [])
        if not keys:
            continue
        path = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        for name in sorted(_action_names(page)):
            if name == "delete_selected":
                continue  # It would take away what the other actions act on.
            chosen = [("action", name), *(("_selected_action", str(key)) for key in keys)]
            yield Request("POST", path, urlencode(chosen).encode(), FORM)
            yield Request("POST", path, urlencode([*chosen, ("confirm", "1"), ("post", "yes")]).encode(), FORM)


def _action_names(page: ModelAdmin) -> set[str]:
    named = {each if isinstance(each, str) else each.__name__ for each in page.actions or ()}
    return named | {name for name, _ in admin.site.actions}


def _closed(client: Client, role: Role, scene: Scene, report: Report) -> None:
    """No page of the admin opens for who is not staff."""
    for request in opened(scene):
        answer = client.send(PART, role, request)
        public = request.path.startswith("/admin/jsi18n")
        if answer is not None and answer.status_code == 200 and not public:
            report.found(PART, "leaks", f"a page of the admin opens for {role.name}", request.path)
