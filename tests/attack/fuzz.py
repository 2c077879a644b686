"""Schemathesis over the whole OpenAPI schema, as several roles, with a fixed seed."""

import json
import random
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import hypothesis
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, errors
from schemathesis.generation import GenerationMode

from tests.attack.access import schema
from tests.attack.addresses import API
from tests.attack.client import JSON, Client, Request
from tests.attack.people import People, new_owner
from tests.attack.report import Report
from tests.attack.scenes import Scene
from tests.attack.stage import Stage

PART = "schema"
ROLES, SHORT_ROLES = ("owner", "superuser", "outsider", "worker", "anonymous"), ("owner",)
#: It would end the role's own session.
LEFT_OUT = ("/auth/token/logout/",)
#: The longest URL that is sent: servers refuse longer ones before the product sees them.
MOST_ADDRESS = 4000


def attack(
    stage: Stage, client: Client, people: People, report: Report, chooser: random.Random, *, short: bool
) -> None:
    """Send generated cases of every operation, valid and invalid ones (in the short form alternately), as several
    roles, the owner of a new project among them.
    """
    described = schemathesis.openapi.from_dict(json.loads(json.dumps(schema(), default=str)))
    scene, owner = new_owner(stage, people, "fuzz")
    seed = chooser.randrange(2**32)
    refused = 0
    for name in SHORT_ROLES if short else ROLES:
        role = owner if name == "owner" else people.api[name]
        for number, operation in enumerate(described.get_all_operations()):
            found = operation.ok() if hasattr(operation, "ok") else None
            if found is None:
                refused += 1
            elif not found.path.endswith(LEFT_OUT):
                send = partial(client.send, PART, role)
                if not short or number % 2:
                    fuzz(send, scene, found, GenerationMode.POSITIVE, seed, 1 if short else 12)
                if not short or not number % 2:
                    fuzz(send, None, found, GenerationMode.NEGATIVE, seed, 1 if short else 12)
    if refused:
        report.found(PART, "errors", "operations of the schema could not be read", f"{refused} operations")


def fuzz(
    send: Callable[[Request], Any], scene: Scene | None, operation: Any, mode: GenerationMode, seed: int, examples: int
) -> None:
    """Send up to ``examples`` cases of one operation, with keys of ``scene`` if given."""

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
    def one(case: Any) -> None:
        if scene is not None and case.method.upper() != "DELETE":
            own = scene.key(case.path.removeprefix(API).split("/{")[0])
            case.path_parameters = {name: own or value for name, value in (case.path_parameters or {}).items()}
        request = as_request(case)
        if request is not None:
            send(request)

    with warnings.catch_warnings(), suppress(errors.Unsatisfiable, errors.InvalidArgument):
        warnings.simplefilter("ignore")
        one()


def as_request(case: Any) -> Request | None:
    """Return a generated case as a plain request; None if it does not fit into a URL."""
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
