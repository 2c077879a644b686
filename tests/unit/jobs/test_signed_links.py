"""Errors that services report contain no usable signed link."""

from ami.jobs.models import JobImage, JobLog
from ami.jobs.services.image_settlement import settle_failed
from ami.ml.services.capture_files import public_url
from tests.support.product.job_setup import Now, World


def test_a_failed_image_keeps_no_signature(world: World) -> None:
    [capture] = world.captures(1)
    job = world.running([capture])
    link = public_url(capture, "https://antenna.example")
    settle_failed(job.pk, [capture.pk], f"404 Client Error: Not Found for url: {link}")
    job.log(f"1 image failed: {link}", level="ERROR")
    stored = f"{JobImage.objects.get(job=job).error} {JobLog.objects.filter(job=job).latest('pk').message}"
    assert stored.count("signature=***") == 2
    assert link.partition("signature=")[2] not in stored


def test_a_pushed_batch_carries_links_that_open_without_a_token(world: World, monkeypatch, settings) -> None:
    from django.test import Client

    from ami.jobs.services import push_dispatch
    from ami.jobs.services.cold_wait import ColdWait

    settings.ANTENNA_PUBLIC_URL = "http://testserver"
    captures = world.captures(2)
    job = world.running(captures)
    sent = []
    monkeypatch.setattr(push_dispatch, "service_for", lambda pipeline, project_id: None)
    monkeypatch.setattr(push_dispatch, "process", lambda service, request, **_: sent.append(request) or 1 / 0)
    rows = list(JobImage.objects.filter(job=job).select_related("source_image"))
    try:
        push_dispatch._push_batch(job, rows, {}, boxes={}, wait=ColdWait(job, Now()))
    except ZeroDivisionError:
        [request] = sent
    for picture in request.source_images:
        assert picture.url.startswith("http://testserver/api/v2/captures/")
        answer = Client().get(picture.url)
        assert b"".join(answer.streaming_content)[:3] == b"\xff\xd8\xff"
