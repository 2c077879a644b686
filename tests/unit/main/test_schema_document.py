"""The API's schema is rendered once for each of its formats, and not sent again to a client that has it."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from ami.main.api import schema_document

ADDRESS = "/api/v2/schema/"


@pytest.fixture
def rendered(monkeypatch) -> list[str]:
    """Each time that the schema is made."""
    schema_document._rendered.cache_clear()
    made: list[str] = []
    whole = SchemaGenerator.get_schema

    def get_schema(self, *args, **options):
        made.append("made")
        return whole(self, *args, **options)

    monkeypatch.setattr(SchemaGenerator, "get_schema", get_schema)
    return made


def test_schema_is_made_once_for_all_spellings_of_a_format(rendered):
    json_type, own_type = "application/json", "application/vnd.oai.openapi+json"
    accepted = [json_type, own_type, f"{json_type}; indent=8", json_type]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda kind: Client().get(ADDRESS, HTTP_ACCEPT=kind), accepted))
    found.append(Client().get(f"{ADDRESS}?lang=de&version=7", HTTP_ACCEPT=json_type))
    assert rendered == ["made"]
    assert {answer.status_code for answer in found} == {200}
    assert len({(answer.content, answer["ETag"]) for answer in found}) == 1
    assert [answer["Content-Type"] for answer in found] == [json_type, own_type, *[json_type] * 3]
    assert json.loads(found[0].content)["info"]["title"] == "Antenna"


def test_schema_is_not_sent_to_a_client_that_has_it(rendered):
    first = Client().get(ADDRESS)
    assert "/api/v2/jobs/" in yaml.load(first.content, yaml.CSafeLoader)["paths"]
    for given in (first["ETag"], f'W/{first["ETag"]}, "another"', "*"):
        again = Client().get(ADDRESS, HTTP_IF_NONE_MATCH=given)
        assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    assert Client().get(ADDRESS, HTTP_IF_NONE_MATCH='"another"').status_code == 200
    assert Client().head(ADDRESS)["ETag"] == first["ETag"]
    assert rendered == ["made"]
    assert Client().get(ADDRESS, HTTP_ACCEPT="application/json")["ETag"] != first["ETag"]


def test_schema_is_refused_in_a_format_that_it_has_not(rendered):
    assert Client().get(ADDRESS, HTTP_ACCEPT="image/png").status_code == 406
    assert Client().post(ADDRESS).status_code in (401, 403, 405)
    assert rendered == []
