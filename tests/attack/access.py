"""Access: every endpoint, method, filter and field, as each role, with own and foreign keys."""

import functools
import json
import random
from collections.abc import Iterator
from typing import Any

from drf_spectacular.generators import SchemaGenerator

from tests.attack import values
from tests.attack.addresses import Address, api_addresses, other_addresses
from tests.attack.client import JSON, Client, Request, Role
from tests.attack.people import People
from tests.attack.report import Report
from tests.attack.sample import Sample
from tests.attack.scenes import Scene

PART = "access"
READ, WRITE = ("GET", "HEAD", "OPTIONS"), ("POST", "PUT", "PATCH")
SIGN_OUT = "/api/v2/auth/token/logout/"
SIGN_IN = "/api/v2/auth/token/login/"
PAGES = ("limit", "offset", "ordering", "page", "search", "format", "start_now", "logs_limit", "no_async")
#: What a worker may read.
FOR_WORKERS = ("/api/v2/jobs/", "/api/v2/projects/{key}/pipelines/")
#: Kinds of rows that have no list in the API.
ROWS_WITHOUT_LIST = ("site", "device", "source")
UNKNOWN = 2**40


def attack(client: Client, people: People, report: Report, chooser: random.Random, most: int) -> None:
    """Send up to ``most`` requests of each family as each role; the superuser, who may change all rows, is last."""
    _controls(client, people, report)
    for role in people.api.values():
        client.send_all(PART, role, outside())
    before = people.victim.fingerprint()
    roles = sorted(people.api.values(), key=lambda role: role.name == "superuser")
    samples = {family: Sample(most, chooser) for family in (by_key, by_filter, by_body, deletes)}
    # Several roles share a scene, and so its tens of thousands of requests.
    scenes = {scene.name: scene for scene in people.scenes.values()}
    requests = functools.lru_cache(6)(lambda family, name: list(family(scenes[name], people.victim)))
    for role in roles:
        if role.name == "superuser":
            changed(PART, people.victim, before, report)
        scene = people.scenes[role.name]
        for family in (by_key, by_filter, by_body):
            client.send_all(PART, role, samples[family].of(requests(family, scene.name)))
        _refused(client, role, people, report)
        client.send_all(PART, role, samples[deletes].of(deletes(scene, people.victim)))
    for family, sample in samples.items():
        sample.report_left_out(f"{PART} {family.__name__}", report)
    report.note(f"access: {len(roles)} roles: {', '.join(role.name for role in roles)}")


def _controls(client: Client, people: People, report: Report) -> None:
    """Check that an owner sees the own project's texts; otherwise a response without foreign ones proves nothing."""
    blind = []
    for path in (f"/api/v2/{kind}/" for kind in people.scenes["owner"].side.rows if kind not in ROWS_WITHOUT_LIST):
        answer = client.send(PART, people.api["owner"], Request("GET", path))
        if answer is None or answer.status_code != 200 or not answer.json().get("count"):
            blind.append(path)
    marker = people.scenes["owner"].marker.encode()
    answer = client.send(PART, people.api["owner"], Request("GET", "/api/v2/projects/"))
    if blind or answer is None or marker not in answer.content:
        report.found(PART, "errors", "the owner does not see the own rows", ", ".join(blind) or "projects")


def changed(part: str, victim: Scene, before: dict[str, str], report: Report) -> None:
    """Report each table in which rows of the victim have changed."""
    for label, text in victim.fingerprint().items():
        report.count(part)
        if before[label] != text:
            report.found(part, "leaks", f"rows of {label} of another project were changed", f"any request of {part}")


def keys(address: Address, own: Scene, foreign: Scene) -> list[tuple[str, Any]]:
    """Return (description, key) pairs for an address: rows of both, else small numbers; unknown and malformed keys."""
    if not address.has_key:
        return [("no key", "")]
    rows = [("foreign", foreign.key(address.kind)), ("own", own.key(address.kind))]
    known = [row for row in rows if row[1] is not None] or [("small", number) for number in range(1, 9)]
    return [*known, ("unknown", UNKNOWN), *((f"key {text[:20]}", text) for text in values.IN_KEYS)]


def by_key(own: Scene, foreign: Scene) -> Iterator[Request]:
    """Every address with every method but DELETE: own, foreign, unknown and malformed keys, odd bodies."""
    for address in api_addresses():
        if address.path == SIGN_OUT:
            continue
        named = keys(address, own, foreign)
        first, last = address.of(named[0][1]), address.of(named[-1][1])
        for what, key in named:
            for method in (*READ, *WRITE):
                body = b"{}" if method in WRITE else None
                yield Request(method, address.of(key), body, kinds=(address.path, f"{method} {what}"))
        for method in ("GET", "POST"):
            body = b"{}" if method == "POST" else None
            yield Request(method, first.rstrip("/") + ".json", body, kinds=(address.path, f"{method} .json"))
        for body in values.BODIES:
            yield Request("POST", first, body, kinds=(address.path, f"body {body[:20]!r}"))
        for content_type in values.CONTENT_TYPES:
            yield Request("POST", last, b'{"a": 1}', content_type, kinds=(address.path, content_type))
        yield Request("TRACE", first, kinds=(address.path, "TRACE"))


def outside() -> Iterator[Request]:
    """Every address beside the API and the admin, with every method but DELETE."""
    for address in other_addresses():
        for method in (*READ, *WRITE):
            yield Request(method, address.path, b"{}" if method in WRITE else None, kinds=(address.path, method))


def by_filter(own: Scene, foreign: Scene) -> Iterator[Request]:
    """Every parameter of every list: foreign keys, malformed values, and the parameters of pages."""
    for path, operations in schema()["paths"].items():
        parameters = [p["name"] for p in operations.get("get", {}).get("parameters", []) if p["in"] == "query"]
        template = path
        if "{" in path:
            parameters, path = list(PAGES), _filled(path, own)
        for name in dict.fromkeys([*parameters, *PAGES]):
            for scene in (foreign, own):
                whose = "foreign" if scene is foreign else "own"
                for kind in ("projects", "deployments", "captures", "jobs", "ml/pipelines", "captures/collections"):
                    kinds = (template, f"parameter {name}", f"{whose} {kind}")
                    yield Request("GET", f"{path}?{name}={scene.key(kind)}", kinds=kinds)
            for value in values.IN_QUERIES:
                kinds = (template, f"parameter {name}", f"value {value[:30]} of {len(value)}")
                yield Request("GET", f"{path}?{name}={value}", kinds=kinds)
        several = f"pipeline__slug__in={foreign.side.world.pipeline.slug}&ids_only=1&limit=50"
        yield Request("GET", f"{path}?{several}", kinds=(template, "a foreign slug beside two parameters"))


def _filled(path: str, scene: Scene) -> str:
    kind = path.removeprefix("/api/v2/").split("/{")[0]
    return path.split("{")[0] + str(scene.key(kind) or 1) + path.split("}")[1]


def by_body(own: Scene, foreign: Scene) -> Iterator[Request]:
    """Every field of every body: a foreign key, and each hostile value beside plausible others."""
    for path, method, fields in bodies():
        address = _filled(path, own) if "{" in path else path
        plausible = {name: _plausible(name, own) for name in fields}
        plausible = {name: value for name, value in plausible.items() if value is not None}
        to = f"{method} {path}"
        yield Request(method, address, json.dumps(plausible).encode(), kinds=(to, "plausible"))
        for name in fields:
            for kind in ("projects", "deployments", "captures", "ml/pipelines", "captures/collections", "source"):
                kinds = (to, f"field {name}", f"foreign {kind}")
                yield Request(method, address, json.dumps({**plausible, name: foreign.key(kind)}).encode(), kinds=kinds)
            for text in values.IN_BODIES:
                kinds = (to, f"field {name}", f"value {text[:30]} of {len(text)}")
                yield Request(method, address, _with(plausible, name, text), kinds=kinds)


def _with(plausible: dict[str, Any], name: str, text: str) -> bytes:
    rest = json.dumps({key: value for key, value in plausible.items() if key != name})
    return f'{{"{name}": {text}{", " if rest != "{}" else ""}{rest[1:]}'.encode()


def _plausible(name: str, scene: Scene) -> Any:
    """Return a value that passes a body's first validation."""
    kinds = {"project": "projects", "pipeline": "ml/pipelines", "deployment": "deployments"}
    if name in kinds:
        return scene.key(kinds[name])
    known = {
        "name": "x",
        "job_type_key": "ml",
        "format": "occurrences_simple_csv",
        "method": "full",
        "batch_size": 1,
        "results": [],
        "processing_service_name": f"Service of {scene.name}",
        "pipelines": [],
        "email": "person@example.org",
        "password": "x",
    }
    return known.get(name)


def deletes(own: Scene, foreign: Scene) -> Iterator[Request]:
    """DELETE of foreign rows first, then of own ones."""
    for scene in (foreign, own):
        whose = "foreign" if scene is foreign else "own"
        for address in reversed(api_addresses()):
            if address.has_key and (key := scene.key(address.kind)) is not None:
                yield Request("DELETE", address.of(key), kinds=(f"{whose} {address.path}",))


def _refused(client: Client, role: Role, people: People, report: Report) -> None:
    """Check that no endpoint opens without a token, with a disabled one, or with a worker's."""
    if role.name not in ("anonymous", "disabled") and not (role.name == "worker" and people.scoped):
        return
    for address in api_addresses():
        if address.path in (SIGN_IN, "/api/v2/schema/") or (role.name == "worker" and address.path in FOR_WORKERS):
            continue
        path = address.of(people.scenes[role.name].key(address.kind) or 1)
        answer = client.send(PART, role, Request("GET", path))
        if answer is not None and answer.status_code < 400:
            report.found(PART, "leaks", f"{answer.status_code} for {role.name}", f"GET {path}")


def schema() -> dict[str, Any]:
    """Return the OpenAPI schema of the product."""
    if not _SCHEMA:
        _SCHEMA.update(SchemaGenerator().get_schema(request=None, public=True))
    return _SCHEMA


_SCHEMA: dict[str, Any] = {}


def bodies() -> Iterator[tuple[str, str, list[str]]]:
    """Yield path, method and the names of the body's fields of each operation that takes JSON."""
    for path, operations in schema()["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {}) if isinstance(operation, dict) else {}
            if JSON in content:
                reference = content[JSON]["schema"].get("$ref", "").rsplit("/", 1)[-1]
                component = schema()["components"]["schemas"].get(reference, {})
                yield path, method.upper(), sorted(component.get("properties", {"x": {}}))
