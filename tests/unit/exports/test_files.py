"""Downloads of exports: by role or signed link only."""

import logging

import pytest
from django.core.files.storage import default_storage
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from ami.exports.models import DataExport
from ami.exports.services import files, writer
from ami.main.services import file_urls
from tests.support.product import factories
from tests.support.product.factories import Turn

pytestmark = pytest.mark.django_db
CSV, JSON = "occurrences_simple_csv", "occurrences_api_json"


def export_of(project, format_key=CSV) -> DataExport:
    export = DataExport.objects.create(project=project, format=format_key)
    assert writer.advance(export, Turn())
    return export


def path_of(export) -> str:
    return f"/api/v2/exports/{export.pk}/file/"


def body(answer) -> bytes:
    assert answer.status_code == 200, answer.content
    return b"".join(answer.streaming_content)


def test_the_addresses_that_are_made_are_those_of_the_views(project):
    export = export_of(project)
    assert path_of(export) == reverse("export-file", args=[export.pk])
    assert file_urls.address("captures", 1, "image") == reverse("capture-image", args=[1])
    assert file_urls.address("detections", 1, "crop") == reverse("detection-crop", args=[1])


@pytest.mark.parametrize(
    ("format_key", "content_type", "extension"),
    [(CSV, "text/csv; charset=utf-8", "csv"), (JSON, "application/json", "json")],
)
def test_a_member_downloads_the_file(client, project, format_key, content_type, extension):
    export = export_of(project, format_key)
    answer = client.get(path_of(export))
    with default_storage.open(export.file_path) as file:
        assert body(answer) == file.read()
    assert answer["Content-Type"] == content_type
    name = f"moths-of-the-alps_export-{export.pk}.{extension}"
    assert answer["Content-Disposition"] == f'attachment; filename="{name}"'
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Cache-Control"] == "private, no-store"
    assert int(answer["Content-Length"]) == export.file_size


def test_non_member_gets_404_and_anonymous_401(project):
    export, stranger = export_of(project), APIClient()
    stranger.force_authenticate(factories.user())
    assert stranger.get(path_of(export)).status_code == 404
    assert APIClient().get(path_of(export)).status_code == 401
    assert APIClient().head(path_of(export)).status_code == 401


def test_link_in_a_response_downloads_without_a_token(client, project):
    export = export_of(project)
    link = client.get(f"/api/v2/exports/{export.pk}/").json()["file_url"]
    assert body(APIClient().get(link))
    assert APIClient().head(link)["Content-Length"] == str(export.file_size)
    other = export_of(project)
    assert APIClient().get(link.replace(path_of(export), path_of(other))).status_code == 403


def test_old_guessable_url_is_a_404(client, project):
    export = export_of(project)
    for path in (export.file_path, f"exports/moths-of-the-alps_export-{export.pk}.csv"):
        assert client.get(f"/media/{path}").status_code == 404


def test_an_export_that_is_not_written_yet_is_a_409(client, project):
    export = DataExport.objects.create(project=project, format=CSV)
    answer = client.get(path_of(export))
    assert (answer.status_code, answer.json()["detail"].split(".")[0]) == (409, "This export is not written yet")
    assert client.get(f"/api/v2/exports/{export.pk}/").json()["file_url"] == ""


def test_a_file_that_was_deleted_is_a_404_with_its_reason(client, project):
    export = export_of(project)
    default_storage.delete(export.file_path)
    answer = client.get(path_of(export))
    assert (answer.status_code, answer.json()) == (404, {"detail": files.FILE_DELETED})


@pytest.mark.parametrize(
    "path", ["../hidden.csv", "/etc/passwd", "detections/1.jpg", "exports", "exports/../../hidden.csv"]
)
def test_row_with_another_files_path_gives_no_access(client, project, path, tmp_path):
    (tmp_path / "hidden.csv").write_text("hidden")
    export = export_of(project)
    DataExport.objects.update(file_path=path)
    assert client.get(path_of(export)).status_code == 404


def test_an_export_that_runs_again_keeps_its_link(client, project, django_capture_on_commit_callbacks):
    export = export_of(project)
    link = client.get(f"/api/v2/exports/{export.pk}/").json()["file_url"]
    writer.restart(export)
    assert body(APIClient().get(link))
    with django_capture_on_commit_callbacks(execute=True):
        writer.advance(export, Turn())
    assert body(APIClient().get(link))


def test_admin_links_to_the_file_once_it_exists(project):
    pending, export = DataExport.objects.create(project=project, format=CSV), export_of(project)
    browser = Client()
    browser.force_login(factories.user(is_staff=True, is_superuser=True))
    page = browser.get(reverse("admin:exports_dataexport_changelist")).content.decode()
    link = page.partition(f'href="{path_of(export)}')[2].partition('"')[0].replace("&amp;", "&")
    assert path_of(pending) not in page
    assert body(Client().get(path_of(export) + link))
    assert browser.get(reverse("admin:exports_dataexport_change", args=[export.pk])).status_code == 200


def test_a_download_is_logged_without_its_signature(client, project, owner, caplog):
    export = export_of(project)
    caplog.set_level(logging.INFO)
    body(client.get(path_of(export)))
    body(APIClient().get(files.signed_path(export)))
    lines = [record for record in caplog.records if "downloaded" in record.getMessage()]
    assert [(line.getMessage(), line.export, line.user) for line in lines] == [
        ("Export downloaded", export.pk, str(owner)),
        ("Export downloaded", export.pk, "a signed link"),
    ]


def test_no_stored_value_contains_a_signature(client, project, tmp_path):
    """Neither rows, job results nor files of an export contain a signature."""
    from ami.jobs.models import Job
    from ami.jobs.services.job_kinds import kind_of

    factories.occurrence(factories.capture(factories.station(project)), factories.taxon())
    answer = client.post("/api/v2/exports/", {"project": project.pk, "format": JSON}, format="json")
    Job.objects.update(status="STARTED")
    while not kind_of("data_export").advance(Job.objects.get(), Turn()):
        pass
    assert "signature" in client.get(f"/api/v2/exports/{answer.json()['id']}/").json()["file_url"]
    stored = [*DataExport.objects.values(), *Job.objects.values()]
    written = [path.read_bytes() for path in (tmp_path / "media").rglob("*") if path.is_file()]
    assert len(written) >= 1
    assert "signature" not in f"{stored}{written}"


@pytest.mark.parametrize("format_key", [CSV, JSON])
def test_the_list_is_filtered_by_format(client, project, format_key):
    for each in (CSV, JSON):
        DataExport.objects.create(project=project, format=each)
    found = client.get("/api/v2/exports/", {"format": format_key})
    assert found.status_code == 200
    assert [row["format"] for row in found.json()["results"]] == [format_key]
