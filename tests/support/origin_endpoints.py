"""Compares the origin's endpoints with ours; run it to write ``docs/origin-endpoints.md`` anew."""

import csv
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "origin-endpoints.md"

#: The version that the table was read from: its router, its view sets, and those of djoser.
COMMIT = "731cc2a2"

HEAD = f"""# Endpoints of the origin

The origin (RolnickLab/antenna, commit {COMMIT}) has {{total}} endpoints; [the table](origin-endpoints.csv) names them.
{{present}} of them are here, with the same method and path. A test compares the table with the OpenAPI
schema and this page with both;
`python -m tests.support.origin_endpoints` writes the page anew.

## Here and not in the origin

{{more}}

## In the origin and not here

{{missing}}
"""

Endpoint = tuple[str, str]


def of_the_origin() -> set[Endpoint]:
    """Return the method and path of each endpoint; ``{id}`` stands for every key."""
    with (DOCS / "origin-endpoints.csv").open() as file:
        return {(row["method"], row["path"]) for row in csv.DictReader(file)}


def ours() -> set[Endpoint]:
    """Return the method and path of each operation in our schema."""
    from drf_spectacular.generators import SchemaGenerator

    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    return {(method.upper(), re.sub(r"{\w+}", "{id}", path)) for path, methods in paths.items() for method in methods}


def page(here: set[Endpoint]) -> str:
    """Return the page for the endpoints that are here."""
    wanted = of_the_origin()
    return HEAD.format(
        total=len(wanted), present=len(wanted & here), more=_listed(here - wanted), missing=_listed(wanted - here)
    )


def _listed(endpoints: set[Endpoint]) -> str:
    methods: dict[str, list[str]] = {}
    for method, path in sorted(endpoints):
        methods.setdefault(path, []).append(method)
    return "\n".join(f"- `{path}`: {', '.join(methods[path])}" for path in sorted(methods))


if __name__ == "__main__":
    import django

    django.setup()
    PAGE.write_text(page(ours()))
    print(f"written: {PAGE.name}")
