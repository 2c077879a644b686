"""The export writer: formats, slices, repeated runs."""

import csv
import io
import json
import re

import pytest
from django.core.files.storage import default_storage
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ami.exports.models import DataExport, ExportPart
from ami.exports.services import writer
from ami.exports.services.formats.occurrences_csv import safe
from ami.exports.services.formats.row import COLUMNS
from ami.main.api.occurrences import OccurrenceSerializer
from ami.main.models import Classification, Detection, Identification, Occurrence, SourceImageCollection
from ami.ml.models import Algorithm
from tests.support.product import factories
from tests.support.product.factories import Turn

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
CSV, JSON = "occurrences_simple_csv", "occurrences_api_json"


def export_of(project, format_key=CSV, **filters):
    return DataExport.objects.create(project=project, format=format_key, filters=filters)


def text(export):
    with default_storage.open(export.file_path) as file:
        return file.read().decode()


def rows(export):
    if export.format == JSON:
        return json.loads(text(export))
    return list(csv.DictReader(io.StringIO(text(export))))


def found(project, number=1):
    station = factories.station(project)
    return [factories.occurrence(factories.capture(station), factories.taxon()) for _ in range(number)]


def in_slices(export):
    slices = 1
    while not writer.advance(DataExport.objects.get(pk=export.pk), Turn(1)):
        slices += 1
        assert slices < 50
    export.refresh_from_db()
    return slices


@pytest.mark.parametrize("format_key", [CSV, JSON])
def test_an_export_has_every_occurrence_once(project, format_key):
    expected = [occurrence.pk for occurrence in found(project, 5)]
    export = export_of(project, format_key)
    assert writer.advance(export, Turn())
    assert [int(row["id"]) for row in rows(export)] == expected
    assert export.record_count == 5
    assert export.file_size == len(text(export).encode())
    extension = "csv" if format_key == CSV else "json"
    assert re.fullmatch(rf"exports/moths-of-the-alps_export-{export.pk}-[0-9a-f]{{32}}\.{extension}", export.file_path)


@pytest.mark.parametrize("format_key", [CSV, JSON])
def test_nothing_to_export_makes_a_valid_file(project, format_key):
    export = export_of(project, format_key)
    assert writer.advance(export, Turn())
    assert rows(export) == []
    assert export.record_count == 0


def test_occurrences_without_box_or_determination_are_left_out(project):
    (kept,) = found(project)
    factories.occurrence(factories.capture(factories.station(project)))
    factories.null_marker(factories.capture(factories.station(project)))
    found(factories.project())
    export = export_of(project)
    writer.advance(export, Turn())
    assert [int(row["id"]) for row in rows(export)] == [kept.pk]


def test_a_capture_set_narrows_an_export(project):
    first, _ = found(project, 2)
    chosen = SourceImageCollection.objects.create(name="Set", project=project)
    chosen.images.add(first.detection.source_image)
    export = export_of(project, collection_id=chosen.pk)
    writer.advance(export, Turn())
    assert [int(row["id"]) for row in rows(export)] == [first.pk]


@pytest.mark.parametrize("format_key", [CSV, JSON])
def test_slices_have_the_same_result_as_one_run(project, format_key, monkeypatch):
    monkeypatch.setattr(writer, "BATCH", 2)
    found(project, 7)
    whole, sliced = export_of(project, format_key), export_of(project, format_key)
    writer.advance(whole, Turn())
    assert in_slices(sliced) > 3
    assert text(sliced) == text(whole)


def test_a_redelivered_slice_duplicates_no_row(project, monkeypatch, django_capture_on_commit_callbacks):
    monkeypatch.setattr(writer, "BATCH", 2)
    expected = [occurrence.pk for occurrence in found(project, 6)]
    export = export_of(project)
    writer.advance(export, Turn(1))
    record, redelivered = writer._record_part, []

    def record_after_another_worker(part):
        if not redelivered:
            redelivered.append(True)
            writer._write_part(DataExport.objects.get(pk=export.pk), Turn(1))
        return record(part)

    monkeypatch.setattr(writer, "_record_part", record_after_another_worker)
    with django_capture_on_commit_callbacks(execute=True):
        in_slices(export)
    assert redelivered
    assert [int(row["id"]) for row in rows(export)] == expected
    assert default_storage.listdir(f"exports/parts/{export.pk}")[1] == []


def test_crash_between_file_and_row_loses_and_repeats_no_row(project, monkeypatch):
    monkeypatch.setattr(writer, "BATCH", 2)
    expected = [occurrence.pk for occurrence in found(project, 4)]
    export = export_of(project)
    writer.advance(export, Turn(1))
    with monkeypatch.context() as crash:
        crash.setattr(writer, "_record_part", lambda part: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            writer.advance(export, Turn(1))
    in_slices(export)
    assert [int(row["id"]) for row in rows(export)] == expected


def test_finished_export_is_not_rewritten(project):
    found(project)
    export = export_of(project)
    writer.advance(export, Turn())
    finished_at = export.finished_at
    found(project)
    assert writer.advance(export, Turn())
    export.refresh_from_db()
    assert export.finished_at == finished_at
    assert len(rows(export)) == 1


def test_an_export_that_is_run_again_replaces_its_file(project, django_capture_on_commit_callbacks):
    found(project)
    export = export_of(project)
    writer.advance(export, Turn())
    path = export.file_path
    found(project)
    writer.restart(export)
    assert default_storage.exists(path)
    with django_capture_on_commit_callbacks(execute=True):
        writer.advance(export, Turn())
    assert default_storage.listdir("exports")[1] == [export.file_path.removeprefix("exports/")]
    assert export.file_path != path
    assert len(rows(export)) == 2 == export.record_count


def test_unpublished_file_is_deleted(project, monkeypatch):
    export = export_of(project)
    with monkeypatch.context() as crash:
        crash.setattr(writer, "_replace", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            writer.advance(export, Turn())
    assert default_storage.listdir("exports")[1] == []
    assert writer.advance(export, Turn())


@pytest.mark.parametrize("format_key", [CSV, JSON])
def test_export_contains_stable_urls(project, format_key, settings):
    settings.ANTENNA_PUBLIC_URL = "https://antenna.example/"
    (occurrence,) = found(project)
    type(occurrence.detection).objects.update(path="detections/x.jpg")
    export = export_of(project, format_key)
    writer.advance(export, Turn())
    (row,) = rows(export)
    detection = row["detection"] if format_key == JSON else {"url": row["best_detection_url"]}
    capture = detection["source_image"]["url"] if format_key == JSON else row["best_detection_capture_url"]
    assert detection["url"] == f"https://antenna.example/api/v2/detections/{occurrence.detection_id}/crop/"
    assert capture == f"https://antenna.example/api/v2/captures/{occurrence.detection.source_image_id}/image/"
    assert "signature" not in text(export)


def test_later_occurrences_are_not_exported(project, monkeypatch):
    monkeypatch.setattr(writer, "BATCH", 1)
    found(project, 3)
    export = export_of(project)
    writer.advance(export, Turn(1))
    found(project, 3)
    in_slices(export)
    assert len(rows(export)) == 3


def test_an_export_deleted_while_it_runs_ends_quietly(project):
    found(project)
    export = export_of(project)
    writer.advance(export, Turn(1))
    running = DataExport.objects.get(pk=export.pk)
    export.delete()
    assert writer.advance(running, Turn())


def test_deleting_an_export_deletes_its_files(project, django_capture_on_commit_callbacks):
    found(project)
    export = export_of(project)
    with django_capture_on_commit_callbacks(execute=True):
        writer.advance(export, Turn())
    path = export.file_path
    with django_capture_on_commit_callbacks(execute=True):
        export.delete()
    assert not default_storage.exists(path)
    assert not ExportPart.objects.exists()


def test_the_columns_of_a_row(project):
    species = factories.taxon("Noctua pronuba")
    occurrence = factories.occurrence(factories.capture(factories.station(project), path="a.jpg"), species, 0.75)
    person = factories.user(name="Ada")
    Identification.objects.create(occurrence=occurrence, user=person, taxon=species)
    export = export_of(project)
    writer.advance(export, Turn())
    (row,) = rows(export)
    assert tuple(row) == COLUMNS
    assert row["determination_name"] == row["best_machine_prediction_name"] == "Noctua pronuba"
    assert (row["best_machine_prediction_score"], row["determination_score"]) == ("0.75", "1.0")
    assert (row["verification_status"], row["verified_by"], row["participant_count"]) == ("Verified", "Ada", "1")
    assert row["determination_matches_machine_prediction"] == "True"
    assert row["first_appearance"] == factories.NIGHT.isoformat()
    assert person.email not in text(export)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", " ="])
def test_formula_text_is_escaped(start):
    assert safe(f"{start}SUM(A1)") == f"'{start}SUM(A1)"


@pytest.mark.parametrize("value", ["", "moth", "a=b", "1.5"])
def test_text_that_is_not_a_formula_is_unchanged(value):
    assert safe(value) is value


def test_formulas_in_names_are_escaped_in_the_file(owner):
    name = '=HYPERLINK("http://evil")'
    station = factories.station(factories.project(owner=owner, name=name), name=name)
    moth, person = factories.taxon(name), factories.user(name=name)
    occurrence = factories.occurrence(factories.capture(station, path="a.jpg", public_base_url=name), moth)
    predicted = Classification.objects.get(detection=occurrence.detection)
    Algorithm.objects.filter(pk=predicted.algorithm_id).update(name=name)
    first = Identification.objects.create(occurrence=occurrence, user=person, taxon=moth)
    agreements = {"agreed_with_prediction": predicted, "agreed_with_identification": first}
    Identification.objects.create(occurrence=occurrence, user=person, taxon=moth, **agreements)
    export = export_of(station.project)
    writer.advance(export, Turn())
    (row,) = rows(export)
    assert {column for column, value in row.items() if value.startswith("'=")} == {
        *(column for column in COLUMNS if column.endswith("_name")),
        "best_machine_prediction_algorithm",
        "agreed_with_algorithm",
        "agreed_with_user",
        "verified_by",
        "best_detection_capture_url",
    } - {"event_name"}
    assert not any(value.startswith("=") for value in row.values())


@pytest.mark.parametrize("format_key", [CSV, JSON])
def test_queries_of_a_batch_do_not_grow_with_rows(project, format_key):
    found(project, 2)
    with CaptureQueriesContext(connection) as few:
        writer.advance(export_of(project, format_key), Turn())
    found(project, 10)
    with CaptureQueriesContext(connection) as many:
        writer.advance(export_of(project, format_key), Turn())
    assert len(many) == len(few)


def test_json_is_what_the_api_answers(project, settings):
    settings.ANTENNA_PUBLIC_URL = "https://antenna.example/"
    species, station = factories.taxon("Noctua \u201cpronuba\u201d", rank="SPECIES"), factories.station(project)
    first = factories.occurrence(factories.capture(station, path="/a b.jpg"), species, 0.1 + 0.2)
    other = factories.occurrence(
        factories.capture(station, path="/c.jpg", public_base_url="https://files.example/", width=4096, height=2160),
        factories.taxon(),
    )
    Detection.objects.filter(pk=other.detection_id).update(path="crops/1.jpg", timestamp=None)
    for user, taxon in ((factories.user(name="Ada"), species), (None, None)):
        fields = {"taxon": taxon, "comment": 'line\n"quoted"', "withdrawn": not user}
        Identification.objects.create(occurrence=first, user=user, **fields)
    export = export_of(project, JSON)
    writer.advance(export, Turn())
    asked = OccurrenceSerializer.prepare(Occurrence.objects.filter(determination__isnull=False).order_by("pk"))
    expected = [json.dumps(each, cls=DjangoJSONEncoder) for each in OccurrenceSerializer(asked, many=True).data]
    assert len(expected) == 2
    assert text(export) == "[\n" + ",\n".join(expected) + "\n]\n"
