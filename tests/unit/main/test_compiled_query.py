"""Queries that are compiled once give the rows of the queryset that they were built from."""

from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext

from ami.main.models import Taxon
from ami.main.services.compiled_query import CompiledQuery

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


@pytest.fixture
def taxa() -> list[Taxon]:
    return [Taxon.objects.create(name=f"Moth {n}", display_name=f"Moth {n}") for n in range(9)]


def test_rows_are_those_of_the_queryset_for_any_number_of_arguments(taxa: list[Taxon]) -> None:
    built: list[int] = []

    def build(names: list[str], least: int) -> QuerySet[Taxon, Any]:
        built.append(len(names))
        rows = Taxon.objects.filter(name__in=names, pk__gte=least).exclude(name="Moth 3")
        return rows.order_by("-pk").values_list("name", "shared", "created_at")

    query = CompiledQuery(build)
    for _ in range(2):
        for number in range(10):
            names, least = [taxon.name for taxon in taxa[:number]], taxa[1].pk
            assert query.rows(names, least) == (list(build(names, least)) if names else [])
    compiled = [1, 2, 4, 8, 16]
    assert sorted(built) == sorted(compiled + 2 * list(range(1, 10)))


def test_an_argument_that_the_statement_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match="argument is not in the statement"):
        CompiledQuery(lambda name: Taxon.objects.values_list("pk")).rows("a")  # noqa: ARG005


def test_arguments_are_parameters_and_not_text_of_the_statement(taxa: list[Taxon]) -> None:
    query = CompiledQuery(lambda names: Taxon.objects.filter(name__in=names).values_list("pk"))
    with CaptureQueriesContext(connection):
        assert query.rows(["'); DROP TABLE main_taxon; --", "%s", "Moth 1"]) == [(taxa[1].pk,)]
