"""The format `occurrences_api_json`: a JSON array of occurrences as in the API."""

import json
from collections.abc import Sequence

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import QuerySet

from ami.exports.services.formats.registry import register
from ami.main.api.occurrences import OccurrenceSerializer
from ami.main.models import Occurrence


class OccurrencesJson:
    """One object per line inside one array, in UTF-8."""

    key = "occurrences_api_json"
    name = "Occurrences (JSON)"
    extension = "json"
    content_type = "application/json"
    between = b",\n"

    def head(self) -> bytes:
        return b"[\n"

    def tail(self) -> bytes:
        return b"\n]\n"

    def prepare(self, occurrences: "QuerySet[Occurrence]") -> "QuerySet[Occurrence]":
        return OccurrenceSerializer.prepare(occurrences)

    def rows(self, occurrences: Sequence[Occurrence]) -> bytes:
        data = OccurrenceSerializer(occurrences, many=True).data
        return self.between.join(json.dumps(fields, cls=DjangoJSONEncoder).encode() for fields in data)


register(OccurrencesJson())
