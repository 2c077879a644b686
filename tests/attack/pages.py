"""The admin's pages as each role: lists with every filter, forms, actions, and changes of foreign rows."""

import functools
import random
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.options import ModelAdmin
from django.db import models

from tests.attack import values
from tests.attack.access import changed
from tests.attack.addresses import KEY, Address, admin_addresses
from tests.attack.client import Client, Request, Role
from tests.attack.people import People
from tests.attack.report import Report
from tests.attack.sample import Sample
from tests.attack.scenes import Scene

PART = "admin"
FORM = "application/x-www-form-urlencoded"
#: These would end a role's session or change its password.
LEFT_OUT = ("logout", "password_change", "/login/")
LIST_PARAMETERS = ("q", "o", "p", "e", "all", "_to_field", "_popup", "_changelist_filters")
IN_FORMS = ["", "x", "\x00", "-1", "9" * 30, "1e308", "0001-01-01", "[", '{"a": "\\ud800"}', '"\\ud800"', "a" * 5000]


def attack(client: Client, people: People, report: Report, chooser: random.Random, most: int, most_opened: int) -> None:
    """Open pages as every role, and post to forms; roles that may change rows are last."""
    from tests.support.product import admin_rows

    admin_rows.everything()
    before = people.victim.fingerprint()
    closed, open_to, odd, filtered, written = (
        Sample(count, chooser) for count in (most_opened, most_opened, most, most, most)
    )
    of_everybody = list(filters())
    for name in ("anonymous", "owner", "staff", "superuser"):
        if name == "superuser":
            changed(PART, people.victim, before, report)
        role, target = people.admin[name], people.scenes[name] if name == "superuser" else people.victim
        if name in ("anonymous", "owner"):
            _closed(client, role, closed.of(opened(target)), report)
        else:
            client.send_all(PART, role, open_to.of(opened(target)))
        for sample, requests in ((odd, odd_keys()), (filtered, of_everybody), (written, writing(target))):
            client.send_all(PART, role, sample.of(requests))
        if name == "superuser":
            client.send_all(PART, role, actions(target))
    samples = {"closed": closed, "opened": open_to, "odd keys": odd, "filters": filtered, "writing": written}
    for name, sample in samples.items():
        sample.report_left_out(f"{PART} {name}", report)


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
    """Yield the pages, without those that would end the session."""
    for address in admin_addresses():
        if not any(part in address.path for part in LEFT_OUT) and address.path.count(KEY) < 2:
            yield address


def opened(scene: Scene) -> Iterator[Request]:
    """GET every page, with a row of the scene."""
    for address in pages():
        yield Request("GET", address.of(key_of(address, scene)), kinds=(address.path,))


def odd_keys() -> Iterator[Request]:
    """GET every page of a row with malformed keys."""
    for address in pages():
        if address.has_key:
            form = address.name.rsplit("_", 1)[-1]
            for key in values.IN_KEYS:
                yield Request("GET", address.of(key), kinds=(f"page {form}", f"key {key[:20]}"))


def filters() -> Iterator[Request]:
    """GET every list with every filter and odd values, and the search of related rows."""
    for address in pages():
        if address.name.endswith("_changelist"):
            for name in (*LIST_PARAMETERS, *_lookups(address.model)):
                sort = name if name in LIST_PARAMETERS else name.partition("__")[2]
                for value in values.IN_QUERIES:
                    kinds = (f"parameter {sort}", f"value {value[:30]} of {len(value)}")
                    yield Request("GET", f"{address.path}?{name}={value}", kinds=kinds)
    for name in ("app_label", "model_name", "field_name", "term"):
        for value in ("main", "user", "password", "%00", "%ED%A0%80", "token"):
            path = f"/admin/autocomplete/?app_label=jobs&model_name=job&field_name=project&{name}={value}"
            yield Request("GET", path, kinds=(f"search {name}", f"search for {value}"))


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
            path, form = address.of(key_of(address, scene)), address.name.rsplit("_", 1)[-1]
            table = address.model._meta.label
            yield Request("POST", path, b"", FORM, kinds=(table, f"empty {form}"))
            for value, body in form_bodies(admin.site._registry[address.model]):
                yield Request("POST", path, body, FORM, kinds=(table, f"{form} with {value[:20]!r} of {len(value)}"))
        elif address.name.endswith("_delete"):
            yield Request("POST", address.of(key_of(address, scene)), b"post=no", FORM, kinds=("delete",))
    yield from actions(scene)
    path, many = "/admin/main/project/", b"action=nothing&_selected_action=9" + b"9" * 30
    yield Request("POST", path, b"action=delete_selected&_selected_action=%00", FORM, kinds=("action on NUL",))
    yield Request("POST", path, many, FORM, kinds=("unknown action",))


@functools.cache
def form_bodies(page: ModelAdmin) -> list[tuple[str, bytes]]:
    """Return hostile values and bodies in which one field of the form has it and the others are empty."""
    names = [column.name for column in page.model._meta.get_fields() if getattr(column, "editable", False)]
    return [
        (value, urlencode({name: value, f"{name}_0": value, f"{name}_1": value}).encode())
        for name in names
        for value in IN_FORMS
    ]


def actions(scene: Scene) -> Iterator[Request]:
    """POST each action of each list over the scene's rows, confirmed and not."""
    for model, page in admin.site._registry.items():
        keys = scene.rows.get(model, [])
        if not keys:
            continue
        path = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        for name in sorted(_action_names(page)):
            if name == "delete_selected":
                continue  # It would delete the rows for the other actions.
            chosen = [("action", name), *(("_selected_action", str(key)) for key in keys)]
            kinds = (f"action {name}",)
            confirmed = [*chosen, ("confirm", "1"), ("post", "yes")]
            yield Request("POST", path, urlencode(chosen).encode(), FORM, kinds=kinds)
            yield Request("POST", path, urlencode(confirmed).encode(), FORM, kinds=kinds)


def _action_names(page: ModelAdmin) -> set[str]:
    named = {each if isinstance(each, str) else each.__name__ for each in page.actions or ()}
    return named | {name for name, _ in admin.site.actions}


def _closed(client: Client, role: Role, requests: Iterable[Request], report: Report) -> None:
    """Check that no page opens for a role that is not staff."""
    for request in requests:
        answer = client.send(PART, role, request)
        public = request.path.startswith("/admin/jsi18n")
        if answer is not None and answer.status_code == 200 and not public:
            report.found(PART, "leaks", f"a page of the admin opens for {role.name}", request.path)
