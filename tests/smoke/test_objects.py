"""Object storage for one machine: what Django stores there, it finds again, and a signed link alone opens it."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.containers.deployment import Deployment

#: Runs in web's container, with production's settings.
STORE = """
import json, django, httpx
django.setup()
from django.core.files.base import ContentFile
from django.core.files.storage import storages
files = storages["default"]
name = files.save("crops/moth.bin", ContentFile(b"moth" * 2_000_000))
link = files.url(name)
print(json.dumps({
    "read": len(files.open(name).read()),
    "size": files.size(name),
    "signed": httpx.get(link).status_code,
    "unsigned": httpx.get(link.partition("?")[0]).status_code,
    "other bucket's results": storages["results"].exists(name),
}))
files.delete(name)
print(json.dumps(files.exists(name)))
print(json.dumps(files.save("crops/kept.bin", ContentFile(b"moth" * 2_000_000))))
"""


KEY = {"AWS_ACCESS_KEY_ID": "antenna", "AWS_SECRET_ACCESS_KEY": secrets.token_hex(16)}
#: What points web at it.
STORED_THERE = {"ANTENNA_S3_BUCKET": "antenna", "ANTENNA_S3_ENDPOINT_URL": "http://objects:9000", **KEY}


@pytest.fixture(scope="module")
def storing(deployment: Deployment) -> Iterator[Deployment]:
    """The deployment with its object storage."""
    folder = deployment.folder / "objects"
    made = replace(deployment, folder=folder, variables=deployment.variables | STORED_THERE)
    try:
        made.up("--no-deps", "objects")
        yield made
    finally:
        made.compose("rm", "--stop", "--force", "--volumes", "objects")


@pytest.fixture(scope="module")
def said(storing: Deployment) -> list[str]:
    """What web prints that stores a file, looks at it, deletes it, and stores another."""
    return storing.execute("web", "python", "-c", STORE, **STORED_THERE).splitlines()


def test_what_is_stored_is_read_again_and_only_a_signed_link_opens_it(said: list[str]):
    found, left = json.loads(said[0]), json.loads(said[1])
    assert found["unsigned"] >= 400
    del found["unsigned"]
    assert found == {"read": 8_000_000, "size": 8_000_000, "signed": 200, "other bucket's results": False}
    assert left is False


def test_it_outlives_its_container(storing: Deployment, said: list[str]):
    assert json.loads(said[2]) == "crops/kept.bin"
    storing.up("--no-deps", "--force-recreate", "objects")
    there = "from django.core.files.storage import storages; print(storages['default'].size('crops/kept.bin'))"
    assert storing.execute("web", "python", "-c", there, **STORED_THERE).strip() == "8000000"
