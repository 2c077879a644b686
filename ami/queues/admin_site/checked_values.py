"""Checks values of the admin's forms and filters on which Django and libraries would fail."""

import json
import logging
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from django import forms
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.widgets import AutocompleteSelect, AutocompleteSelectMultiple
from django.core.exceptions import ValidationError
from django.db import DataError, models
from django.forms.fields import InvalidJSONInput
from django.http import HttpRequest

logger = logging.getLogger(__name__)

#: The errors of a value that no column takes: half a surrogate pair, a date outside the calendar, a number too large.
NOT_STORABLE = (DataError, OverflowError, UnicodeEncodeError)
UNSTORABLE = "Holds a NUL character or half a surrogate pair, which no database stores."
NOT_FINITE = "Holds a number that is not finite."
SHAPES: dict[type, str] = {list: "Must be a list.", dict: "Must be an object."}

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class CheckedFields:
    """A mixin of model admins and inlines: checked fields for related rows and for JSON."""

    admin_site: Any

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Return the form field; of a column of JSON with the shape of the column's default, if that has one."""
        if isinstance(db_field, models.JSONField):
            kwargs = {"form_class": JSONField, "empty": _empty(db_field), **kwargs}
        return super().formfield_for_dbfield(db_field, request, **kwargs)  # type: ignore[misc]

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Return the form field of a related row."""
        if db_field.name in self.get_autocomplete_fields(request):  # type: ignore[attr-defined]
            kwargs.setdefault("widget", RowSelect(db_field, self.admin_site, using=kwargs.get("using")))
        return super().formfield_for_foreignkey(db_field, request, **kwargs)  # type: ignore[misc]

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Return the form field of related rows."""
        if db_field.name in self.get_autocomplete_fields(request):  # type: ignore[attr-defined]
            kwargs.setdefault("widget", RowsSelect(db_field, self.admin_site, using=kwargs.get("using")))
        return super().formfield_for_manytomany(db_field, request, **kwargs)  # type: ignore[misc]


class CheckedValues(CheckedFields):
    """A mixin of model admins: a wrong value is an error in its form, a wrong filter is dropped."""

    model: Any

    def get_inlines(self, request: HttpRequest, obj: Any) -> list[Any]:
        """Return the inlines, with the same fields."""
        return [_checked(inline) for inline in super().get_inlines(request, obj)]  # type: ignore[misc]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Return the form, which checks the row as a whole."""
        form = super().get_form(request, obj, change=change, **kwargs)  # type: ignore[misc]
        return type(form)(form.__name__, (CheckedForm, form), {})

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Show in fields that are only read what is stored: from wrong values nothing may be computed."""
        form = context["adminform"].form
        if form.is_bound:
            stored = self.model._base_manager.filter(pk=form.instance.pk).first() if form.instance.pk else None
            form.instance = stored or self.model()
        return super().render_change_form(request, context, *args, **kwargs)  # type: ignore[misc]

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Return the list; a filter that the database refuses is answered as one that Django refuses."""
        try:
            return super().get_changelist_instance(request)  # type: ignore[misc]
        except (*NOT_STORABLE, ValueError) as error:
            if not request.GET:
                raise
            logger.warning("List filter refused", extra={"model": self.model._meta.label}, exc_info=True)
            raise IncorrectLookupParameters(error) from error


@cache
def _checked(inline: Any) -> Any:
    return type(inline)(inline.__name__, (CheckedFields, inline), {"__module__": inline.__module__})


def _empty(column: Any) -> Any:
    """Return what the column holds when nothing was typed: None where it may."""
    return None if column.null else column.get_default()


class KnownKeys:
    """A mixin of selects: Django's fail on a text that no key can be when they show it again."""

    choices: Any

    def optgroups(self, name: str, value: list[str], attr: Any = None) -> Any:
        """Return the options that are chosen."""
        return super().optgroups(name, [key for key in value if self._may_be_key(key)], attr)  # type: ignore[misc]

    def _may_be_key(self, text: str) -> bool:
        try:  # No query is sent: the text is only converted.
            self.choices.queryset.filter(**{self.choices.field.to_field_name or "pk": text})
        except (TypeError, ValueError, ValidationError):
            return False
        return True


class RowSelect(KnownKeys, AutocompleteSelect):  # type: ignore[misc]
    """Chooses one row."""


class RowsSelect(KnownKeys, AutocompleteSelectMultiple):  # type: ignore[misc]
    """Chooses rows."""


class JSONField(forms.JSONField):
    """Takes JSON that the column stores; ``empty`` stands for nothing typed, a list or an object for the shape, too."""

    def __init__(self, *, empty: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.empty = empty

    def to_python(self, value: Any) -> Any:
        """Return the value.

        Raises:
            ValidationError: it is not JSON, of another shape, or holds what no database stores.
        """
        try:
            converted = super().to_python(value)
        except (ValueError, RecursionError):  # Thousands of digits, or of brackets.
            raise ValidationError(self.error_messages["invalid"], code="invalid") from None
        if converted is None:
            return self.empty
        if wrong := why_unstorable(converted):
            raise ValidationError(wrong, code="unstorable")
        shape: type = type(self.empty)
        if shape in SHAPES and not isinstance(converted, shape):
            raise ValidationError(SHAPES[shape], code="shape")
        return converted

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Return the value to show again; one that cannot be written out is shown as it was typed."""
        try:
            value = super().bound_data(data, initial)
        except (ValueError, RecursionError):
            return InvalidJSONInput(data)
        return InvalidJSONInput(data) if why_unstorable(value) else value


def why_unstorable(value: Any) -> str | None:
    """Return what keeps a value that was read from JSON out of a column, as a sentence; None when nothing does."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (UnicodeEncodeError, RecursionError):
        return UNSTORABLE
    except ValueError:
        return NOT_FINITE
    return UNSTORABLE if _NUL.search(text) else None


class CheckedForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form that checks what a row must not share with others, also where one of the fields is only read."""

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]
        if self.errors or self.instance._state.adding:
            return  # A new row gets what is not in the form when it is saved.
        for wrong in _shared_with_others(self.instance):
            self.add_error(None, wrong)


def _shared_with_others(row: Any) -> Iterator[ValidationError]:
    for check in (row.validate_unique, row.validate_constraints):
        try:
            check()
        except ValidationError as error:
            yield ValidationError(error.messages)
