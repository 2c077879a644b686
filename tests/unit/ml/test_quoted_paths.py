"""Paths with any character lead to their own file, through every consumer of a capture's URL."""

import csv
import json
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler

import httpx
import pytest
from django.core.files.storage import default_storage
from PIL import Image
from rest_framework.test import APIClient

from ami.exports.models import DataExport
from ami.exports.services import writer
from ami.jobs.models import JobImage
from ami.jobs.services import jetstream, pull_dispatch, push_dispatch
from ami.jobs.services.cold_wait import ColdWait
from ami.main.models import Detection, SourceImage
from ami.main.models.captures import public_url
from ami.ml.services import crops
from processing_service.downloads import Downloader
from tests.support.product import factories
from tests.support.product.factories import Turn
from tests.support.product.http_services import listening, push_service, served
from tests.support.product.image_files import jpeg
from tests.support.product.job_setup import Now, World

PRINTABLE = "".join(sorted({*map(chr, range(32, 127))} - {"/"}))
#: Pairs are the same file to a consumer that quotes not at all, or twice.
NAMES = (
    f"{PRINTABLE}.jpg",
    "A.jpg",
    "%41.jpg",
    "%2541.jpg",
    "a",
    "a?sig=x&expires=1#y.jpg",
    "trap #3/1.jpg",
    "50% shade/1.jpg",
    "a+b.jpg",
    "a b.jpg",
    " led/trailing .jpg",
    "caf\u00e9/1.jpg",
    "cafe\u0301/1.jpg",
    "\u86fe\U0001f98b/1.jpg",
    "a;b=c,d/1.jpg",
    "...jpg",
    "http:/x/1.jpg",
    "@x:1/[1].jpg",
)


class Files(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def files(tmp_path) -> Iterator[str]:
    """The address of a plain web server with a picture of another width under each name."""
    for width, name in enumerate(NAMES, 20):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(jpeg((width, 16)))
    with listening(partial(Files, directory=str(tmp_path))) as url:
        yield url


@pytest.fixture
def captures(world: World, files: str) -> list[SourceImage]:
    return [factories.capture(world.station, path=name, public_base_url=files) for name in NAMES]


def pulled(world: World, captures: list[SourceImage], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the URLs of the messages for pull workers."""
    payloads: dict[int, dict[str, str]] = {}
    monkeypatch.setattr(jetstream, "publish", lambda job, found: payloads.update(found) or set(found))
    job = world.running(captures)
    JobImage.objects.filter(job=job).update(state="PENDING")
    rows = JobImage.objects.filter(job=job).values_list(*pull_dispatch.COLUMNS)
    pull_dispatch._publish(job, [pull_dispatch.PendingImage(*row) for row in rows])
    return [payloads[capture.pk]["image_url"] for capture in captures]


def pushed(world: World, captures: list[SourceImage]) -> list[str]:
    """Return the URLs that a push service is sent."""
    found: dict[str, str] = {}

    def refused(_: str, body: object) -> tuple[int, object]:
        found.update({each["id"]: each["url"] for each in body["source_images"]})
        return 400, {}

    job = world.running(captures)
    with served(refused) as url:
        push_service(world, url)
        rows = list(JobImage.objects.filter(job=job).select_related("source_image"))
        push_dispatch._push_batch(job, rows, {}, boxes={}, wait=ColdWait(job, Now()))
    return [found[str(capture.pk)] for capture in captures]


def exported(world: World, kind: str) -> list[str]:
    export = DataExport.objects.create(project=world.project, format=kind)
    assert writer.advance(export, Turn())
    with default_storage.open(export.file_path) as file:
        text = file.read().decode()
    if kind == "occurrences_simple_csv":
        return [row["best_detection_capture_url"] for row in csv.DictReader(text.splitlines())]
    return [row["detection"]["source_image"]["url"] for row in json.loads(text)]


def test_every_consumer_is_given_urls_of_the_right_files(world: World, captures, monkeypatch) -> None:
    for capture in captures:
        factories.occurrence(capture, factories.taxon())
    client = APIClient()
    client.force_authenticate(world.user)
    pages = [f"/api/v2/captures/{capture.pk}/" for capture in captures]
    found = {
        "model": [capture.public_url() for capture in captures],
        "pull": pulled(world, captures, monkeypatch),
        "push": pushed(world, captures),
        "API": [client.get(page).json()["url"] for page in pages],
        "redirect": [client.get(f"{page}image/")["Location"] for page in pages],
        "CSV": exported(world, "occurrences_simple_csv"),
        "JSON": exported(world, "occurrences_api_json"),
    }
    assert {kind: urls for kind, urls in found.items() if urls != found["model"]} == {}
    assert all(url.isascii() and url.isprintable() and " " not in url for url in found["model"])
    with Downloader() as downloader:
        fetched = [(httpx.get(url).content, downloader.fetch(url)) for url in found["model"]]
    assert fetched == [(jpeg((width, 16)),) * 2 for width, _ in enumerate(NAMES, 20)]


@pytest.mark.parametrize("checked", [False, True])
def test_crops_are_cut_from_the_right_files(world: World, captures, settings, checked: bool) -> None:
    settings.ANTENNA_REFUSE_INTERNAL_ENDPOINTS, settings.ANTENNA_ALLOWED_ENDPOINTS = checked, ("127.0.0.1",)
    for capture in captures:
        factories.detection(capture, [0, 0, 900, 16])
    assert crops.make_crops([capture.pk for capture in captures]) == len(captures)
    widths = []
    for path in Detection.objects.order_by("pk").values_list("path", flat=True):
        with default_storage.open(path) as file:
            widths.append(Image.open(file).width)
    assert widths == [width for width, _ in enumerate(NAMES, 20)]


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        ("https://x.example/b/", "/a b.jpg", "https://x.example/b/a%20b.jpg"),
        ("https://x.example/my%20traps", "a.jpg", "https://x.example/my%20traps/a.jpg"),
        ("https://x.example/b?sv=1&sig=a%2Fb%3D", "a?b.jpg", "https://x.example/b/a%3Fb.jpg?sv=1&sig=a%2Fb%3D"),
        ("https://x.example/b/#top", "a.jpg", "https://x.example/b/a.jpg"),
        ("https://x.example", "a//b.jpg", "https://x.example/a//b.jpg"),
        ("https://x.example", "a\\b.jpg", "https://x.example/a%5Cb.jpg"),
        ("https://x.example", "a\n\x7f.jpg", "https://x.example/a%0A%7F.jpg"),
        ("https://x.example", "%2e%2e/b.jpg", "https://x.example/%252e%252e/b.jpg"),
        ("", "a.jpg", ""),
    ],
)
def test_the_base_stays_as_it_is_and_the_path_is_quoted(base: str, path: str, url: str) -> None:
    assert public_url(base, path) == url


@pytest.mark.parametrize("path", ["../b.jpg", "a/../b.jpg", "./b.jpg", "a/.", "a/.."])
def test_a_path_that_clients_would_resolve_has_no_public_url(path: str) -> None:
    assert public_url("https://x.example/mine", path) == ""


def test_the_longest_path_fits_a_task_and_a_redirect(world: World) -> None:
    from ami.ml.schemas import PipelineProcessingTask

    capture = factories.capture(world.station, path="\u86fe" * 1024, public_base_url="https://x.example/")
    PipelineProcessingTask(id="1", image_id="1", image_url=capture.public_url())
    client = APIClient()
    client.force_authenticate(world.user)
    answer = client.get(f"/api/v2/captures/{capture.pk}/image/")
    assert (answer.status_code, answer["Location"]) == (302, capture.public_url())
