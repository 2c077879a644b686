"""Scores and logits are bytes of float64."""

import json
import math
import struct
from itertools import count

import pytest
from django.core import serializers
from django.db import connection

from ami.main.models import Classification
from tests.support.product import factories

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


def stored(pk: int):
    with connection.cursor() as cursor:
        cursor.execute("SELECT scores, logits FROM main_classification WHERE id = %s", [pk])
        return [bytes(value) if isinstance(value, bytes | memoryview) else value for value in cursor.fetchone()]


def test_numbers_keep_their_digits(detection):
    made = classification(detection, scores=NUMBERS, logits=[])
    found = Classification.objects.get(pk=made.pk)
    assert json.dumps(found.scores) == json.dumps(NUMBERS)
    assert found.logits == []
    assert stored(made.pk) == [struct.pack(f"<{len(NUMBERS)}d", *NUMBERS), b""]


def test_a_deferred_list_is_read_when_it_is_used(detection):
    pk = classification(detection, scores=NUMBERS).pk
    assert Classification.objects.defer(*Classification.LONG_LISTS).get(pk=pk).scores == NUMBERS


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
