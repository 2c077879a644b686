"""Listing of storage sources: only below the source's prefix, whatever the subfolder."""

from datetime import UTC, datetime

import pytest
from django.core.exceptions import ValidationError

from ami.main.models import Deployment, S3StorageSource, SourceImage
from ami.main.services import sources
from ami.main.services.paths import problem_of
from ami.main.services.sources import SourceError, pictures
from ami.main.services.station_sync import SyncState, sync
from tests.support.product import factories
from tests.support.product.factories import Turn
from tests.support.product.image_files import SMALLEST_JPEG

pytestmark = pytest.mark.django_db
NAME = "20260601220000.jpg"
OUT = [
    "../theirs",
    "..",
    "mine/../../theirs",
    "a/..",
    "./a",
    "/etc",
    "..\\theirs",
    "%2e%2e/theirs",
    "%2E%2E%2ftheirs",
    "%252e%252e/theirs",
    "..%5ctheirs",
    "a\x00b",
    "a\nb",
]


@pytest.fixture
def folder(tmp_path, settings):
    """A folder source with two projects' folders, and a secret outside it."""
    settings.ANTENNA_LOCAL_SOURCE_ROOTS = [str(tmp_path / "source")]
    for place in ("source/mine/a", "source/theirs", "outside"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / NAME).write_bytes(SMALLEST_JPEG)
    return tmp_path


def station_of(folder, subdir="", prefix="mine"):
    project = factories.project()
    source = S3StorageSource.objects.create(
        name="Source", project=project, endpoint_url=f"file://{folder}/source", prefix=prefix
    )
    return factories.station(project, data_source=source, data_source_subdir=subdir)


@pytest.mark.parametrize("subdir", OUT)
def test_a_subfolder_that_leaves_the_source_is_refused_with_its_field(client, project, subdir):
    body = {"name": "x", "project": project.pk, "data_source_subdir": subdir}
    answer = client.post("/api/v2/deployments/", body, format="json")
    assert answer.status_code == 400
    assert list(answer.json()) == ["data_source_subdir"]
    station = factories.station(project)
    patched = client.patch(f"/api/v2/deployments/{station.pk}/", {"data_source_subdir": subdir}, format="json")
    assert list(patched.json()) == ["data_source_subdir"]


@pytest.mark.parametrize("subdir", OUT)
def test_the_admins_forms_refuse_it_too(project, subdir):
    with pytest.raises(ValidationError) as station:
        Deployment(name="x", project=project, data_source_subdir=subdir).full_clean()
    with pytest.raises(ValidationError) as source:
        S3StorageSource(name="x", project=project, prefix=subdir).full_clean()
    assert (list(station.value.message_dict), list(source.value.message_dict)) == (["data_source_subdir"], ["prefix"])


@pytest.mark.parametrize("subdir", ["", "a", "a/b", "2026-06..07", "100% wild/nachts", "ä", "a/"])
def test_an_ordinary_subfolder_is_taken(client, project, subdir):
    body = {"name": "x", "project": project.pk, "data_source_subdir": subdir}
    assert client.post("/api/v2/deployments/", body, format="json").status_code == 201


@pytest.mark.parametrize("subdir", [path for path in OUT if path != "/etc"])
@pytest.mark.parametrize("scheme", ["file", "bucket"])
def test_an_older_row_that_leaves_the_source_lists_nothing(folder, subdir, scheme, monkeypatch):
    monkeypatch.setattr(sources, "bucket_client", lambda source: pytest.fail("was asked"))
    station = station_of(folder)
    # Bypasses validation, as in old rows; PostgreSQL stores no NUL.
    station.data_source_subdir = subdir
    if scheme == "bucket":
        station.data_source.endpoint_url = "https://s3.example"
    with pytest.raises(SourceError, match="data_source_subdir"):
        list(pictures(station))


def test_a_leading_slash_of_an_older_row_names_the_same_folder(folder):
    assert [found.path for found in pictures(station_of(folder, "/a/"))] == [f"mine/a/{NAME}"]


def test_a_link_out_of_the_source_is_not_followed(folder):
    (folder / "source/mine/out").symlink_to(folder / "source/theirs")
    (folder / "source/mine/away").symlink_to(folder / "outside")
    (folder / "source/mine/a/link.jpg").symlink_to(folder / "outside" / NAME)
    assert [found.path for found in pictures(station_of(folder))] == [f"mine/a/{NAME}"]
    for subdir in ("out", "away"):
        with pytest.raises(SourceError):
            list(pictures(station_of(folder, subdir)))


def test_generated_files_are_not_captures(folder, settings):
    settings.MEDIA_ROOT = str(folder / "source")
    for name in ("detections", "exports"):
        (folder / "source" / name).mkdir()
        (folder / "source" / name / NAME).write_bytes(SMALLEST_JPEG)
    found = [found.path for found in pictures(station_of(folder, prefix=""))]
    assert found == [f"mine/a/{NAME}", f"theirs/{NAME}"]
    for name in ("detections", "exports"):
        with pytest.raises(SourceError, match="holds files that Antenna made"):
            list(pictures(station_of(folder, name, prefix="")))


def test_a_bucket_that_answers_other_keys_gives_no_captures(folder, monkeypatch):
    keys = [f"mine/{NAME}", f"theirs/{NAME}", f"mine/../theirs/{NAME}", f"mine/%2e%2e/{NAME}", f"mine/..\\{NAME}"]
    contents = [{"Key": key, "Size": 5, "LastModified": datetime(2026, 6, 1, tzinfo=UTC)} for key in keys]
    pages = type("Pages", (), {"paginate": lambda self, **asked: [{"Contents": contents}]})
    monkeypatch.setattr(
        sources, "bucket_client", lambda source: type("S3", (), {"get_paginator": lambda s, n: pages()})()
    )
    station = station_of(folder)
    station.data_source.endpoint_url = "https://s3.example"
    state = sync(station, SyncState(), Turn())
    assert (state.synced, state.failed) == (1, 3)
    assert [capture.path for capture in SourceImage.objects.all()] == [f"mine/{NAME}"]


def test_invalid_path_has_a_reason():
    assert "relative" in problem_of("/x")
    assert "'..'" in problem_of("x/../y")
    assert "backslash" in problem_of("x\\y")
