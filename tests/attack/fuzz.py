"""Schemathesis over the whole OpenAPI schema, as each of a few roles, with a fixed seed."""

import json
import random
import warnings
from contextlib import suppress
from typing import Any

import hypothesis
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, errors
from schemathesis.generation import GenerationMode

from tests.attack.access import schema
from tests.attack.client import JSON, Client, Request, Role
from tests.attack.people import People
from tests.attack.report import Report

PART = "schema"
ROLES, SHORT_ROLES = ("owner", "superuser", "outsider", "worker", "anonymous"), ("owner",)
#: What ends the role's own session.
LEFT_OUT = ("/auth/token/logout/",)
#: The largest address that is sent: servers refuse longer ones before the product sees them.
MOST_ADDRESS = 4000


def attack(client: Client, people: People, report: Report, chooser: random.Random, *, short: bool) -> None:
    """Send generated cases of every operation, valid and invalid ones."""
    described = schemathesis.openapi.from_dict(json.loads(json.dumps(schema(), default=str)))
    seed = chooser.randrange(2**32)
    refused = 0
    for name in SHORT_ROLES if short else ROLES:
        for operation in described.get_all_operations():
            found = operation.ok() if hasattr(operation, "ok") else None
            if found is None:
                refused += 1
            elif not found.path.endswith(LEFT_OUT):
                for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                    fuzz(client, people.api[name], found, mode, seed, 2 if short else 25)
    if refused:
        report.note(f"schema: {refused} operations could not be read")


def fuzz(client: Client, role: Role, operation: Any, mode: GenerationMode, seed: int, examples: int) -> None:
    """Send so many cases of one operation; what cannot be generated in this mode is left out."""

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        request = as_request(case)
        if request is not None:
            client.send(PART, role, request)

    with warnings.catch_warnings(), suppress(errors.Unsatisfiable, errors.InvalidArgument):
        warnings.simplefilter("ignore")
        send()


def as_request(case: Any) -> Request | None:
    """Return a generated case as a plain request; None for what cannot stand in an address."""
    arguments = case.as_transport_kwargs(base_url="http://attack")
    try:
        names = ("method", "url", "params", "data", "json", "files")
        prepared = requests.Request(**{name: arguments.get(name) for name in names}).prepare()
    except (requests.RequestException, UnicodeError, ValueError):
        return None
    path = (prepared.url or "").removeprefix("http://attack")
    if not path.startswith("/") or len(path) > MOST_ADDRESS:
        return None
    body = prepared.body.encode() if isinstance(prepared.body, str) else prepared.body
    return Request(prepared.method or "GET", path, body, str(prepared.headers.get("Content-Type", JSON)))
