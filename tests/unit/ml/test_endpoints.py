"""Forbidden addresses of services and captures are refused when entered and when called, with a reason."""

import pytest
from django.core.exceptions import ValidationError
from rest_framework.test import APIClient

from ami.jobs.models import JobImage
from ami.jobs.services import job_slice
from ami.main.models import Detection, S3StorageSource
from ami.ml.errors import PictureRefused
from ami.ml.models import ProcessingService
from ami.ml.services import crops, probes
from ami.ml.services.capture_files import read
from tests.support.product.http_services import push_service, served
from tests.support.product.job_setup import Now, World

REASON = "is at 127.0.0.1 (loopback), which is never called"


@pytest.fixture(autouse=True)
def enforced(settings):
    settings.ANTENNA_REFUSE_INTERNAL_ENDPOINTS = True
    settings.ANTENNA_ALLOWED_ENDPOINTS = ()


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def loopback(asked: list[str]):
    """A server on this machine that answers every request."""
    with served(lambda path, body: asked.append(path) or (200, {"status": ["a"]})) as url:
        yield url


@pytest.fixture
def staff(world: World) -> APIClient:
    world.user.is_staff = True
    world.user.save()
    client = APIClient()
    client.force_authenticate(world.user)
    return client


def test_api_refuses_an_address_of_this_machine_with_its_field(world: World, staff: APIClient) -> None:
    body = {"name": "metadata", "endpoint_url": "http://169.254.169.254/latest", "project": world.project.pk}
    answer = staff.post("/api/v2/ml/processing_services/", body, format="json")
    assert answer.status_code == 400
    assert list(answer.json()) == ["endpoint_url"]
    assert "ANTENNA_ALLOWED_ENDPOINTS" in str(answer.json())
    body["endpoint_url"] = "http://10.0.0.7:2000"
    assert staff.post("/api/v2/ml/processing_services/", body, format="json").status_code == 201


def test_admin_refuses_an_address_of_this_machine_with_its_field(db) -> None:
    with pytest.raises(ValidationError) as refused:
        ProcessingService(name="x", endpoint_url="http://localhost:9").full_clean()
    assert list(refused.value.message_dict) == ["endpoint_url"]
    source = S3StorageSource(name="x", endpoint_url="http://127.0.0.1:9", public_base_url="http://[::1]/")
    with pytest.raises(ValidationError) as refused:
        source.clean()
    assert sorted(refused.value.message_dict) == ["endpoint_url", "public_base_url"]
    S3StorageSource(name="x", endpoint_url="file:///data/media", public_base_url="https://10.0.0.9/b").clean()
    S3StorageSource(name="x", endpoint_url="http://objects.invalid:9000").clean()


def test_job_fails_with_the_reason_when_its_service_may_not_be_called(world: World, loopback, asked) -> None:
    push_service(world, loopback)
    job = world.job(world.captures(1), mode="sync_api")
    job_slice.run_slice(job, "me", Now())
    job.refresh_from_db()
    assert job.status == "FAILURE"
    assert REASON in JobImage.objects.get().error
    assert asked == []


def test_check_of_a_service_says_why_it_is_not_called(world: World, loopback, asked) -> None:
    service = push_service(world, loopback)
    status = probes.check_now(service)
    assert (status.server_live, status.request_successful) == (False, False)
    assert REASON in (status.error or "")
    _, error = probes.fetch_configs(service)
    assert REASON in error
    assert asked == []


def test_capture_is_not_fetched_from_this_machine_and_not_tried_again(world: World, loopback, asked) -> None:
    [capture] = world.captures(1)
    capture.public_base_url = loopback
    capture.save()
    with pytest.raises(PictureRefused, match="127.0.0.1"):
        read(capture)
    Detection.objects.create(source_image=capture, detection_algorithm=world.detector, bbox=[0, 0, 9, 9])
    with pytest.raises(crops.CropsRefused, match="loopback"):
        crops.make_crops([capture.pk])
    assert asked == []


def test_listed_service_is_called(world: World, loopback, asked, settings) -> None:
    settings.ANTENNA_ALLOWED_ENDPOINTS = ("127.0.0.0/8",)
    assert probes.check_now(push_service(world, loopback)).server_live
    assert asked == ["/readyz", "/info"]
