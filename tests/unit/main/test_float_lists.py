"""Scores and logits are bytes of float64; rows of an earlier version read the same, and are converted in steps."""

import json
import math
import struct
from itertools import count

import pytest
from django.core import serializers
from django.db import connection

from ami.main.models import Classification
from ami.main.services import float_conversion
from ami.main.services.float_conversion import convert
from ami.queues import named_leases
from ami.queues.models import Lease
from tests.support.product import factories
from tests.support.product.factories import Turn

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]

NUMBERS = [0.1, 1.0, 5e-324, 0.30000000000000004, math.pi, -1.7976931348623157e308, 0.0]


@pytest.fixture
def detection():
    return factories.detection(factories.capture(factories.station()))


_keys = count()


def classification(detection, **fields) -> Classification:
    algorithm = factories.classifier()
    algorithm.pk, algorithm.key, algorithm.name = None, f"c{next(_keys)}", f"c{next(_keys)}"
    algorithm.save()
    return Classification.objects.create(detection=detection, algorithm=algorithm, **fields)


def old(detection, scores, logits=()) -> int:
    """Insert a row as an earlier version did."""
    made = classification(detection)
    values = {"scores": None, "logits": None, "scores_json": scores, "logits_json": list(logits)}
    Classification.objects.filter(pk=made.pk).update(**values)
    return made.pk


def stored(pk: int):
    with connection.cursor() as cursor:
        cursor.execute("SELECT scores_f64, logits_f64, scores, logits FROM main_classification WHERE id = %s", [pk])
        return [bytes(value) if isinstance(value, bytes | memoryview) else value for value in cursor.fetchone()]


def test_numbers_keep_their_digits(detection):
    made = classification(detection, scores=NUMBERS, logits=[])
    found = Classification.objects.get(pk=made.pk)
    assert json.dumps(found.scores) == json.dumps(NUMBERS)
    assert found.logits == []
    assert stored(made.pk) == [struct.pack(f"<{len(NUMBERS)}d", *NUMBERS), b"", None, None]


def test_a_row_of_an_earlier_version_reads_the_same(detection):
    pk = old(detection, NUMBERS, [1, 2.5])
    found = Classification.objects.get(pk=pk)
    assert (found.scores, found.logits) == (NUMBERS, [1, 2.5])
    deferred = Classification.objects.defer(*Classification.LONG_LISTS).get(pk=pk)
    assert deferred.scores == NUMBERS
    assert "scores" in Classification.objects.only("pk").get(pk=pk).get_deferred_fields()


def test_a_list_that_is_no_list_of_numbers_is_refused(detection):
    with pytest.raises(TypeError):
        classification(detection, scores=["high"])


def test_fixtures_carry_the_numbers(detection):
    made = classification(detection, scores=NUMBERS)
    text = serializers.serialize("json", [made])
    Classification.objects.all().delete()
    for each in serializers.deserialize("json", text):
        each.save()
    assert Classification.objects.get(pk=made.pk).scores == NUMBERS


def converted(slices: int = 1, asks: int | None = None) -> bool:
    """Run so many slices; return what the last one returned."""
    done = False
    for _ in range(slices):
        with named_leases.held("update_float_lists") as holder:
            assert holder
            done = convert("update_float_lists", holder, Turn(asks))
    return done


def test_old_rows_are_converted_in_steps(detection, monkeypatch, django_assert_max_num_queries):
    monkeypatch.setattr(float_conversion, "MOST_KEYS", 3)
    monkeypatch.setattr(float_conversion, "MOST_ROWS", 2)
    new = classification(detection, scores=[0.25])
    pks = [old(detection, [number / 7], [float(number)]) for number in range(7)]
    assert not converted(asks=1)
    assert stored(pks[-1])[0] is None
    for _ in range(20):
        if converted(asks=1):
            break
    for number, pk in enumerate(pks):
        assert stored(pk) == [struct.pack("<d", number / 7), struct.pack("<d", number), None, None]
    assert Classification.objects.get(pk=new.pk).scores == [0.25]
    assert converted()
    with django_assert_max_num_queries(6):
        assert converted()


def test_a_row_that_was_saved_meanwhile_keeps_its_new_numbers(detection):
    pk = old(detection, [0.5])
    Classification.objects.filter(pk=pk).update(scores=[0.75], logits=[])
    assert converted()
    assert stored(pk) == [struct.pack("<d", 0.75), b"", None, None]


def test_a_row_without_numbers_stays_and_the_others_are_converted(detection, caplog):
    bad, good = old(detection, ["high"]), old(detection, [0.5])
    assert converted()
    assert json.dumps(Classification.objects.get(pk=bad).scores) == '["high"]'
    assert stored(good)[0] == struct.pack("<d", 0.5)
    assert "they stay JSON" in caplog.text


def test_a_lost_lease_converts_nothing(detection):
    pk = old(detection, [0.5])
    assert named_leases.take("update_float_lists", "another", 60)
    assert not convert("update_float_lists", "me", Turn(None))
    assert stored(pk)[0] is None
    assert Lease.objects.get(name="update_float_lists").state == {}
