"""Object storage for one machine: what Django stores there, it finds again, and a signed link alone opens it."""

import json
import secrets
from collections.abc import Iterator

import pytest

from tests.support.containers.deployment import Deployment, new_variables

#: Runs in a container of the image, with production's settings.
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
"""


@pytest.fixture(scope="module")
def storing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The object storage alone, and the variables that point web and workers at it."""
    variables = new_variables(
        ANTENNA_S3_BUCKET="antenna",
        ANTENNA_S3_ENDPOINT_URL="http://objects:9000",
        AWS_ACCESS_KEY_ID="antenna",
        AWS_SECRET_ACCESS_KEY=secrets.token_hex(16),
    )
    made = Deployment(tmp_path_factory.mktemp("objects") / "deployment", variables)
    try:
        made.up("--build", "objects")
        made.compose("build", "web", timeout=600)
        yield made
    finally:
        made.down("--volumes")


def test_what_is_stored_is_read_again_and_only_a_signed_link_opens_it(storing: Deployment):
    said = storing.compose("run", "--rm", "--no-TTY", "--no-deps", "web", "python", "-c", STORE).splitlines()
    found, left = json.loads(said[0]), json.loads(said[1])
    assert found["unsigned"] >= 400
    del found["unsigned"]
    assert found == {"read": 8_000_000, "size": 8_000_000, "signed": 200, "other bucket's results": False}
    assert left is False


def test_it_outlives_its_container(storing: Deployment):
    keep = STORE.rpartition("files.delete")[0]
    storing.compose("run", "--rm", "--no-TTY", "--no-deps", "web", "python", "-c", keep)
    storing.up("--force-recreate", "objects")
    there = "import django; django.setup()\nfrom django.core.files.storage import storages\n"
    there += "print(storages['default'].size('crops/moth.bin'))"
    said = storing.compose("run", "--rm", "--no-TTY", "--no-deps", "web", "python", "-c", there)
    assert said.strip() == "8000000"
