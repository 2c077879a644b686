"""Access control: no access without a token, none to another user's project."""

import pytest
from rest_framework.test import APIClient

from ami.exports.models import DataExport
from ami.jobs.models import Job
from ami.main.models import BulkDeletion, Project
from ami.ml.models import ProcessingService
from tests.support.product.api_addresses import API, METHODS, addresses

#: Public endpoints: sign-in, probes and the API schema.
OPEN = {("post", "/api/v2/auth/token/login/"), ("get", "/livez"), ("get", "/api/v2/schema/")}
LISTS = ["projects", "deployments", "events", "captures/collections", "captures", "detections", "occurrences"]
LISTS += ["jobs", "exports", "ml/pipelines", "ml/processing_services"]


def test_the_list_of_addresses_is_the_whole_api():
    assert len(API) > 45
    assert not [address for address in API if "json" in address], "each path is listed once, without a format"
    assert {"/api/v2/jobs/1/result/", "/api/v2/projects/1/pipelines/", "/api/v2/captures/1/reprocess/"} <= set(API)
    assert {"/api/v2/exports/1/file/", "/api/v2/captures/1/image/", "/api/v2/detections/1/crop/"} <= set(API)


def test_addresses_beside_the_api_and_the_admin_are_known_and_closed():
    others = {each for each in addresses() if not each.startswith(("/api/", "/admin/"))}
    assert others == {"/", "/favicon.ico", "/livez", "/metrics"}
    visitor = APIClient()
    assert {address: visitor.get(address).status_code for address in sorted(others)} == {
        "/": 302,
        "/favicon.ico": 200,
        "/livez": 200,
        "/metrics": 404,  # It has a token of its own, and without one it does not exist.
    }


@pytest.mark.parametrize("address", API)
def test_request_without_a_token_is_refused(db, address):
    visitor = APIClient()
    for method in METHODS:
        if (method, address) in OPEN:
            continue
        answer = getattr(visitor, method)(address, {}, format="json") if method != "get" else visitor.get(address)
        # The schema and the login have no other methods.
        assert answer.status_code in (401, 403, 404, 405), (method, address, answer.status_code)
        if answer.status_code in (404, 405):
            assert address.startswith(("/api/v2/schema/", "/api/v2/auth/token/login/", "/api/v2/1")), (method, address)


@pytest.mark.parametrize("token", ["Token wrong", "Token", "Bearer x", "Token a b", "Token \x00", "Basic eDp5"])
def test_a_wrong_token_is_a_401(db, token):
    client = APIClient(raise_request_exception=False)
    assert client.get("/api/v2/jobs/", HTTP_AUTHORIZATION=token).status_code == 401


def test_deactivated_user_has_no_access(mine):
    client = mine.client
    assert client.get("/api/v2/jobs/").status_code == 200
    mine.world.user.is_active = False
    mine.world.user.save()
    assert client.get("/api/v2/jobs/").status_code == 401


def test_a_session_needs_the_csrf_token(mine):
    browser = APIClient(enforce_csrf_checks=True)
    browser.force_login(mine.world.user)
    for action in ("cancel", "result", "tasks"):
        assert browser.post(f"/api/v2/jobs/{mine.job.pk}/{action}/", {}, format="json").status_code == 403


def test_a_list_shows_only_ones_own(mine, theirs):
    client = mine.client
    for kind in LISTS:
        body = client.get(f"/api/v2/{kind}/").json()
        assert [row["id"] for row in body["results"]] == [mine.rows[kind].pk], kind


def test_another_projects_row_does_not_exist(mine, theirs):
    client = mine.client
    for kind in LISTS:
        row = theirs.rows[kind]
        for method in METHODS:
            status = getattr(client, method)(f"/api/v2/{kind}/{row.pk}/", format="json").status_code
            assert status in (404, 405), (kind, method)
        assert type(row).objects.filter(pk=row.pk).exists(), kind


def test_nothing_can_be_done_in_another_project(mine, theirs, published):
    client = mine.client
    for method, kind, action in (
        *[("post", "jobs", action) for action in ("run", "retry", "cancel", "tasks", "result")],
        ("post", "deployments", "sync"),
        ("post", "deployments", "regroup-sessions"),
        ("post", "captures/collections", "populate"),
        ("post", "captures", "reprocess"),
        ("post", "projects", "pipelines"),
        ("get", "projects", "pipelines"),
        ("get", "exports", "file"),
        ("get", "captures", "image"),
        ("get", "detections", "crop"),
        ("get", "ml/processing_services", "status"),
        ("post", "ml/processing_services", "check"),
        ("post", "ml/processing_services", "register_pipelines"),
    ):
        address = f"/api/v2/{kind}/{theirs.rows[kind].pk}/{action}/"
        assert getattr(client, method)(address, {}, format="json").status_code == 404, address
    assert not published


def test_nothing_is_created_in_another_project(mine, theirs):
    client = mine.client
    for kind, body in (
        ("jobs", {"name": "x", "job_type_key": "regroup_events"}),
        ("exports", {"format": "occurrences_simple_csv"}),
        ("deployments", {"name": "x"}),
        ("captures/collections", {"name": "x"}),
        ("ml/processing_services", {"name": "x"}),
        ("deployments/sync-all", {}),
    ):
        answer = client.post(f"/api/v2/{kind}/", {**body, "project": theirs.world.project.pk}, format="json")
        assert answer.status_code == 400, kind
        assert "does not exist" in str(answer.json()["project"]), kind


def test_row_of_another_project_looks_like_a_missing_row(mine, theirs):
    client = mine.client

    def refusal(kind, field, key):
        body = {"name": "x", "job_type_key": "regroup_events", "project": mine.world.project.pk, field: key}
        answer = client.post(f"/api/v2/{kind}/", body, format="json")
        assert answer.status_code == 400, (kind, field)
        return str(answer.json()[field]).replace(str(key), "KEY")

    for kind, field, other in (
        ("jobs", "deployment", "deployments"),
        ("jobs", "source_image_collection", "captures/collections"),
        ("jobs", "source_image_single", "captures"),
        ("jobs", "pipeline", "ml/pipelines"),
        ("deployments", "research_site", "site"),
        ("deployments", "device", "device"),
        ("deployments", "data_source", "source"),
    ):
        named, unknown = refusal(kind, field, theirs.rows[other].pk), refusal(kind, field, 2**40)
        assert named == unknown, (kind, field)


def test_a_default_pipeline_is_one_that_the_project_uses(mine, theirs):
    address = f"/api/v2/projects/{mine.world.project.pk}/"
    codes = [
        mine.client.patch(address, {"default_processing_pipeline": key}, format="json").status_code
        for key in (theirs.world.pipeline.pk, 2**40, mine.world.pipeline.pk, None)
    ]
    assert codes == [400, 400, 200, 200]
    body = {"name": "new", "default_processing_pipeline": theirs.world.pipeline.pk}
    assert mine.client.post("/api/v2/projects/", body, format="json").status_code == 400


def test_job_takes_no_captures_of_another_project(mine, theirs):
    from ami.jobs.services.job_images import images_of

    body = {
        "name": "x",
        "project": mine.world.project.pk,
        "pipeline": mine.world.pipeline.pk,
        "params": {"source_image_ids": [theirs.capture.pk, mine.capture.pk]},
    }
    answer = mine.client.post("/api/v2/jobs/", body, format="json")
    assert answer.status_code == 201
    assert [image.pk for image in images_of(Job.objects.get(pk=answer.json()["id"]))] == [mine.capture.pk]


@pytest.mark.parametrize("kind", ["data_export", "bulk_delete"])
def test_job_cannot_refer_to_another_users_export_or_deletion(mine, theirs, kind):
    deletion = BulkDeletion.objects.create(target="captures", pks=[theirs.capture.pk])
    params = {"export_id": theirs.rows["exports"].pk, "deletion_id": deletion.pk}
    body = {"name": "x", "project": mine.world.project.pk, "job_type_key": kind, "params": params}
    answer = mine.client.post("/api/v2/jobs/?start_now=1", body, format="json")
    assert answer.status_code == 400
    assert "params" in answer.json()
    own = Job.objects.create(name="own", project=mine.world.project, job_type_key=kind)
    answer = mine.client.patch(f"/api/v2/jobs/{own.pk}/", {"params": params}, format="json")
    assert answer.status_code == 400


def test_export_job_of_another_project_fails_without_revealing_it(mine, theirs):
    from ami.exports.services.export_job import data_export
    from tests.support.product.factories import Turn

    export: DataExport = theirs.rows["exports"]
    job = Job.objects.create(
        name="x", project=mine.world.project, job_type_key="data_export", params={"export_id": export.pk}
    )
    with pytest.raises(ValueError, match="export_id"):
        data_export(job, Turn())


def test_results_for_another_projects_capture_change_nothing(mine, theirs):
    from ami.jobs.models import JobImage, StoredResult
    from ami.jobs.services import ingest

    theirs.rows["detections"].classifications.all().delete()
    before = theirs.capture.detections.count()
    body = {"results": [{"reply_subject": "r", "result": mine.world.found(theirs.capture)}]}
    path = f"/api/v2/jobs/{mine.job.pk}/result/"
    assert mine.client.post(path, body, format="json").status_code == 200
    assert not StoredResult.objects.exists()
    JobImage.objects.filter(job=mine.job).update(reply_subject="r")
    assert mine.client.post(path, body, format="json").status_code == 200
    row = StoredResult.objects.get()
    ingest.handle(mine.job.pk, result_key=row.key, reply_subject="r")
    assert theirs.capture.detections.count() == before


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (
            "jobs",
            {
                "status": "SUCCESS",
                "task_id": "x",
                "result": {"file_url": "x"},
                "dispatch_mode": "sync_api",
                "finished_at": "2020-01-01T00:00:00Z",
            },
        ),
        ("projects", {"owner": 1, "members": [1], "created_at": "2020-01-01T00:00:00Z"}),
        (
            "deployments",
            {
                "captures_count": 7,
                "events_count": 7,
                "taxa_count": 7,
                "data_source_total_files": 7,
                "data_source_last_checked": "2020-01-01T00:00:00Z",
                "first_capture_timestamp": "2020-01-01T00:00:00Z",
            },
        ),
    ],
)
def test_read_only_fields_cannot_be_written(mine, kind, values):
    row = mine.rows[kind]
    before = mine.client.get(f"/api/v2/{kind}/{row.pk}/").json()
    answer = mine.client.patch(f"/api/v2/{kind}/{row.pk}/", values, format="json")
    assert answer.status_code == 200
    after = answer.json()
    assert {name: after.get(name) for name in values} == {name: before.get(name) for name in values}


def test_new_export_or_project_belongs_to_the_caller(mine, theirs):
    other = theirs.world.user.pk
    body = {"name": "x", "owner": other, "project": mine.world.project.pk, "user": other, "file_url": "//evil"}
    made = mine.client.post("/api/v2/projects/", body, format="json").json()
    assert Project.objects.get(pk=made["id"]).owner_id == mine.world.user.pk
    made = mine.client.post("/api/v2/exports/", {**body, "format": "occurrences_simple_csv"}, format="json").json()
    assert (made["user"], made["file_url"]) == (mine.world.user.pk, "")


@pytest.mark.parametrize("url", ["http://169.254.169.254/latest/meta-data/", "http://127.0.0.1:15672/", "http://x/"])
def test_only_staff_set_endpoint_urls(mine, url):
    body = {"name": "evil", "project": mine.world.project.pk, "endpoint_url": url}
    assert mine.client.post("/api/v2/ml/processing_services/", body, format="json").status_code == 403
    assert not ProcessingService.objects.filter(name="evil").exists()


@pytest.mark.parametrize("url", ["file:///etc/passwd", "gopher://x", "//x", "http://", "javascript:1", "ftp://x/"])
def test_endpoint_url_must_be_http(mine, url):
    mine.world.user.is_staff = True
    mine.world.user.save()
    body = {"name": "evil", "project": mine.world.project.pk, "endpoint_url": url}
    assert mine.client.post("/api/v2/ml/processing_services/", body, format="json").status_code == 400


def test_the_schema_and_the_answers_hold_no_secret(mine, settings):
    texts = [mine.client.get("/api/v2/schema/").content]
    texts += [mine.client.get(f"/api/v2/{kind}/").content for kind in LISTS]
    texts += [mine.client.get(f"/api/v2/{kind}/{mine.rows[kind].pk}/").content for kind in LISTS]
    whole = b"".join(texts)
    for secret in ("key-of-the-bucket", settings.SECRET_KEY, settings.CELERY_BROKER_URL, "secret_key", '"holder"'):
        assert secret.encode() not in whole
