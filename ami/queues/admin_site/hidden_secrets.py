"""Keeps secrets off the admin's pages: masked in lists and forms, not searchable, kept when a form sends the mask."""

from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.http import HttpRequest

from ami.queues.redaction import MASK, Unrestorable, is_secret_name, redact, restore

KEEP = "Leave it empty to keep what is stored; it is not shown."


class HiddenSecrets:
    """A mixin of model admins.

    A field with a secret name (`secret_key`) is written, never shown. In every other field passwords of URLs, values
    of secret names and tokens are masked (`ami.queues.redaction`); a mask that a form sends keeps its secret.
    """

    model: Any

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Return the form with the secrets of its row masked."""
        form = super().get_form(request, obj, change=change, **kwargs)  # type: ignore[misc]
        return type(form)(form.__name__, (MaskedForm, form), {})

    def get_formsets_with_inlines(self, request: HttpRequest, obj: Any = None) -> Iterator[Any]:
        """Mask the rows of inlines, too."""
        for formset, inline in super().get_formsets_with_inlines(request, obj):  # type: ignore[misc]
            formset.form = type(formset.form)(formset.form.__name__, (MaskedForm, formset.form), {})
            yield formset, inline

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Mask the row for the fields that are only read; nothing is saved after this."""
        forms_ = [context["adminform"].form]
        forms_ += [form for inline in context["inline_admin_formsets"] for form in inline.formset.forms]
        for form in forms_:
            mask_row(form.instance, None)
        return super().render_change_form(request, context, *args, **kwargs)  # type: ignore[misc]

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Mask the rows of a list; actions load theirs again."""
        changes = super().get_changelist_instance(request)  # type: ignore[misc]
        if request.method == "GET" or not changes.list_editable:  # What is edited in the list is saved from there.
            for row in changes.result_list:
                mask_row(row, changes.list_display)
        return changes

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """Refuse filters on fields that may hold secrets: `?secret_key__startswith=a` would reveal them."""
        if any(_may_hold_secret(field) for field in _fields_on(self.model, lookup)):
            return False
        return bool(super().lookup_allowed(lookup, value, request))  # type: ignore[misc]

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        """Leave out fields that a search would reveal letter by letter."""
        fields = super().get_search_fields(request)  # type: ignore[misc]
        return [name for name in fields if not any(map(_may_hold_secret, _fields_on(self.model, name.lstrip("^=@"))))]


#: Fields of ours and of libraries that take URLs, options, arguments or errors, and so may hold a secret.
FREE = frozenset(
    {"endpoint_url", "public_base_url", "file_url", "uri", "args", "kwargs", "headers", "task_args", "task_kwargs"}
    | {"result", "meta", "traceback", "error", "message", "context", "digest", "properties", "deaths"}
)


def _may_hold_secret(field: Any) -> bool:
    return is_secret_name(field.name) or field.name in FREE or isinstance(field, models.JSONField | models.BinaryField)


def _fields_on(model: Any, lookup: str) -> Iterator[Any]:
    """Yield the fields that a lookup passes, through its relations."""
    for part in lookup.split("__"):
        try:
            field = model._meta.get_field(part)
        except FieldDoesNotExist:
            return
        if field.concrete:
            yield field
        model = field.related_model or model


def mask_row(row: Any, names: Any) -> None:
    """Replace the secrets of an instance that is only shown: in its texts, and in the JSON of the fields ``names``.

    None stands for all fields. The JSON of a hundred rows, such as scores of 29,176 classes each, takes long to search.
    """
    for field in row._meta.concrete_fields:
        if field.is_relation or field.attname not in row.__dict__:
            continue
        if field.name == "password" and isinstance(row, AbstractBaseUser):
            continue  # Django's own widget shows the hash's method and some stars.
        value = row.__dict__[field.attname]
        if isinstance(value, str) or isinstance(value, (dict, list)) and (names is None or field.name in names):
            row.__dict__[field.attname] = _masked(field.name, value)


def _masked(name: str, value: Any) -> Any:
    return MASK if value and is_secret_name(name) else redact(value)


class MaskedForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form that shows masks for secrets, and puts the secrets back where masks return."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kept: dict[str, Any] = {}
        for name, field in self.fields.items():
            if getattr(field.widget, "read_only", False):
                continue
            if is_secret_name(name):
                self._write_only(name, field)
            elif isinstance(value := self.initial.get(name), (str, dict, list)):
                masked = redact(value)
                if masked != value:
                    self._kept[name], self.initial[name] = value, masked

    def _write_only(self, name: str, field: forms.Field) -> None:
        if not hasattr(self.instance, name):
            return  # A field of the form alone, such as a new password twice.
        stored = self.initial.get(name)
        field.widget = forms.PasswordInput(render_value=False, attrs={"autocomplete": "new-password"})
        self.initial[name] = ""
        if stored:
            self._kept[name], field.required, field.help_text = stored, False, KEEP

    def _clean_fields(self) -> None:
        super()._clean_fields()  # type: ignore[misc]
        for name, stored in self._kept.items():
            given = self.cleaned_data.get(name)
            try:
                if is_secret_name(name):
                    self.cleaned_data[name] = given or stored
                elif given is not None:
                    self.cleaned_data[name] = restore(given, stored)
            except Unrestorable as error:
                self.add_error(name, str(error))
