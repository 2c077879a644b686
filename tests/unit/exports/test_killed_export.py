"""An export whose process is killed at any statement continues, and its file has the same bytes as one that was not."""

from functools import partial

import pytest
from django.core.files.storage import default_storage

from ami.exports.models import DataExport
from ami.exports.services import writer
from tests.support.killed_statement import killed_at
from tests.support.product import factories
from tests.support.product.factories import Turn

pytestmark = pytest.mark.sqlite


def write(pk: int) -> bool:
    return writer.advance(DataExport.objects.get(pk=pk), Turn())


def content(pk: int) -> bytes:
    with default_storage.open(DataExport.objects.get(pk=pk).file_path) as file:
        return file.read()


@pytest.mark.parametrize("key", ["occurrences_simple_csv", "occurrences_api_json"])
def test_an_export_killed_at_any_statement_has_the_same_bytes(transactional_db, monkeypatch, key):
    monkeypatch.setattr(writer, "BATCH", 2)
    monkeypatch.setattr(writer, "PART_ROWS", 3)
    project = factories.project()
    station = factories.station(project, name="Übergang, “north”\n=1")
    for _ in range(8):
        factories.occurrence(factories.capture(station), factories.taxon())
    whole = DataExport.objects.create(project=project, format=key)
    assert writer.advance(whole, Turn())
    statement, killed = 0, True
    while killed:
        export = DataExport.objects.create(project=project, format=key)
        killed = killed_at(statement, partial(write, export.pk))
        assert write(export.pk)
        assert content(export.pk) == content(whole.pk), statement
        statement += 3
    assert statement > 30
