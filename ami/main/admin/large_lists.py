"""Admin lists of tables with millions of rows."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from ami.main.services import bounded_counts, keyset
from ami.main.services.bounded_counts import EXACT_UP_TO


class KeysFirstPaginator(Paginator):
    """Pages of rows that are fetched by key: the keys come from an index, and an offset is at most ``EXACT_UP_TO``.

    The count is an estimate above that number; later rows are found with filters and the search.
    """

    @cached_property
    def count(self) -> int:
        """The number of rows, or its estimate."""
        order = keyset.order_of(self.object_list)
        return bounded_counts.count(self.object_list, [self.object_list], order).rows

    @cached_property
    def num_pages(self) -> int:
        """The number of pages that may be opened."""
        return min(int(super().num_pages), EXACT_UP_TO // self.per_page + 1)

    def page(self, number: int | str) -> Any:
        """Return a page.

        Raises:
            django.core.paginator.InvalidPage: there is no such page, or it is too far from the first.
        """
        number = self.validate_number(number)
        offset = (number - 1) * self.per_page
        order = keyset.order_of(self.object_list)
        if order is None:
            return super().page(number)
        found = keyset.positions([self.object_list], order, offset=offset, limit=self.per_page)
        rows: Sequence[Any] = keyset.in_order(self.object_list, [key for _, key in found])
        return self._get_page(rows, number, self)


class LargeChangeList(ChangeList):
    """A list in the order of its model or admin only, whatever the address says."""

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:  # noqa: ARG002
        ordering = self.model_admin.get_ordering(request) or self._get_default_ordering()
        return list(self._get_deterministic_ordering(list(ordering)))

    def get_ordering_field_columns(self) -> dict[int, str]:
        return {}


class LargeListAdmin(admin.ModelAdmin):
    """A list of a large table: in the order of an index, without sorting by columns, full counts and facets.

    ``ordering`` and every filter need an index; `tests/integration/main/test_large_lists.py` reads the plans.
    ``wide`` names columns that no list shows: they are read only for a single row.
    """

    paginator = KeysFirstPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()
    list_max_show_all = 0
    # A page's time is that of rendering its rows.
    list_per_page = 50
    wide: tuple[str, ...] = ()

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:  # noqa: ARG002
        return LargeChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        is_list = request.resolver_match and str(request.resolver_match.url_name).endswith("_changelist")
        return rows.defer(*self.wide) if is_list and self.wide else rows


def search_number(rows: QuerySet[Any], text: str, column: str) -> QuerySet[Any]:
    """Return the rows with this number in a column; none for a text that is not a key."""
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        return rows.none()
    return rows.filter(**{column: int(text)})
