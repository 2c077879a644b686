"""Every list of the API and the admin over large tables: with each filter, first and deep pages."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.test import Client

from ami.main.api.pagination import cursor_of
from ami.main.models import Detection, Occurrence, SourceImage, User
from ami.main.services import keyset, tokens
from tests.support.product.admin_pages import address
from tests.support.product.large_lists import LargeLists

SEARCHES = {"common": ".jpg", "station": "trap/7/", "one": "-4242.jpg", "none": "no such path"}
DEEP = "offset=10000"


@dataclass(frozen=True)
class Page:
    """One page of a list as one user opens it."""

    name: str
    user: User
    path: str

    def client(self) -> Client:
        """Return a client signed in as real ones: with a token in the API, with a session in the admin."""
        if self.path.startswith("/admin/"):
            client = Client()
            client.force_login(self.user)
            return client
        return Client(headers={"authorization": f"Token {tokens.issue(self.user)[1]}"})


def deep_cursor(rows: QuerySet[Any]) -> str:
    """Return the cursor of the middle row."""
    order = keyset.order_of(rows)
    assert order is not None
    middle = rows.count() // 2
    [position] = keyset.positions([rows], order, offset=middle, limit=1)
    return f"cursor={cursor_of(position)}"


def api_lists(made: LargeLists) -> dict[str, list[str]]:
    """Return the queries of each large list of the API; deep pages where the list has that many rows."""
    project, station, event = f"project={made.big.pk}", f"deployment={made.station.pk}", f"event={made.event.pk}"
    captures = ["taken_after=2025-02-10T00:00:00Z", "taken_before=2025-01-20T00:00:00Z"]
    captures += [f"path={text}" for text in SEARCHES.values()]
    sets = [f"collection={each.pk}" for each in (made.common_set, made.rare_set)]
    image = f"source_image={made.capture}"
    taxon = f"taxon={made.taxon}"
    return {
        "captures": [
            *_deep(SourceImage.objects.all()),
            *(project, f"{project}&{DEEP}", station, event, *captures, f"{captures[0]}&{DEEP}", *sets),
            f"{project}&{captures[0]}",
        ],
        "detections": [*_deep(Detection.objects.real()), project, f"{project}&{DEEP}", station, event, image],
        "occurrences": [
            *_deep(Occurrence.objects.all()),
            *(project, f"{project}&{DEEP}", station, event, taxon, f"{taxon}&{DEEP}", image, f"{taxon}&{project}"),
            *("score_min=0.99", f"score_min=0.2&{DEEP}", f"score_min=0.99&{project}"),
        ],
        "jobs": ["", project, "status=STARTED", "limit=200"],
        f"jobs/{made.job}/images": ["", "state=failed", "state=processed", f"state=processed&{DEEP}", DEEP],
        "events": ["", project, station],
        "deployments": ["", project],
        "captures/collections": ["", project],
        "taxa": ["", project, "name=lists"],
        "projects": [""],
    }


def _deep(rows: QuerySet[Any]) -> list[str]:
    return ["", DEEP, deep_cursor(rows)]


def api_pages(made: LargeLists) -> Iterator[Page]:
    """Yield the pages of the API, for a superuser and a member of half of the projects."""
    for name, queries in api_lists(made).items():
        for query in queries:
            for user in (made.superuser, made.member):
                yield Page(
                    f"api/{name}/?{_short(query)} ({user.name or 'superuser'})", user, f"/api/v2/{name}/?{query}"
                )
        if "/images" in name:
            continue  # The job is of a project that the newcomer does not see.
        yield Page(f"api/{name}/ (newcomer)", made.newcomer, f"/api/v2/{name}/")


def admin_lists(made: LargeLists) -> dict[str, list[str]]:
    """Return the queries of each large list of the admin."""
    project = f"project__id__exact={made.big.pk}"
    deep = f"p={min(200, made.captures // 500)}"
    month = "timestamp__gte=2025-02-01+00%3A00%3A00%2B00%3A00&timestamp__lt=2025-03-01+00%3A00%3A00%2B00%3A00"
    job = f"q={made.job}"
    return {
        "SourceImage": ["", deep, project, f"{project}&{deep}", month, *(f"q={text}" for text in SEARCHES.values())],
        "Detection": ["", deep, *(f"detection_algorithm__id__exact={pk}" for pk in (made.detector, made.rare))],
        "Classification": [
            *(
                "",
                deep,
                f"algorithm__id__exact={made.classifier}",
                "terminal__exact=1",
                "terminal__exact=0",
                "is_current__exact=0",
            ),
        ],
        "Occurrence": ["", deep, project, f"{project}&{deep}"],
        "JobImage": [
            "",
            deep,
            job,
            f"{job}&state__exact=processed",
            f"{job}&state__exact=failed",
            f"q=capture+{made.capture}",
        ],
        "StoredResult": ["", deep, job, f"q=job/{made.job}/", "q=none"],
        "Job": ["", "status__exact=STARTED", "q=job"],
        "Event": ["", project],
        "Deployment": ["", project],
        "SourceImageCollection": ["", project],
        "Project": [""],
    }


def admin_pages(made: LargeLists) -> Iterator[Page]:
    """Yield the pages of the admin for a superuser."""
    from django.contrib import admin

    models = {model.__name__: model for model in admin.site._registry}
    for name, queries in admin_lists(made).items():
        for query in queries:
            path = f"{address(models[name], 'changelist')}?{query}"
            yield Page(f"admin/{name}/?{_short(query)}", made.superuser, path)


def _short(query: str) -> str:
    return query if len(query) <= 40 else f"{query[:36]}..."
