"""The forms of the schedule: django-celery-beat's, with an error on the field where those fail or accept anything."""

import json
from typing import Any

from celery.schedules import ParseException, crontab
from django import forms
from django_celery_beat.admin import PeriodicTaskForm as BeatPeriodicTaskForm
from django_celery_beat.models import CrontabSchedule
from kombu.utils.json import loads

from ami.queues.admin_site.checked_values import SHAPES, why_unstorable

CRON_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")


class PeriodicTaskForm(BeatPeriodicTaskForm):
    """Names the argument that does not fit; beat would switch the entry off or fail."""

    def clean(self) -> Any:
        """Check the form as a whole; the library's check fails on a task that was refused already."""
        self.cleaned_data.setdefault("task", self.data.get("task", ""))
        return super().clean()

    def clean_args(self) -> str:
        """Check the list of arguments."""
        return self._clean_json("args", list)

    def clean_kwargs(self) -> str:
        """Check the named arguments."""
        return self._clean_json("kwargs", dict)

    def clean_headers(self) -> str:
        """Check the headers, which may be left out."""
        return self._clean_json("headers", dict) if self.cleaned_data["headers"] else ""

    def _clean_json(self, field: str, shape: type = object) -> str:
        text: str = self.cleaned_data[field]
        try:
            value, plain = loads(text), json.loads(text)
        except Exception as error:  # Values that are marked so become dates and others, which may fail with any error.
            raise forms.ValidationError(f"Unable to parse JSON: {error}") from None
        if not isinstance(value, shape):
            raise forms.ValidationError(SHAPES[shape])
        if wrong := why_unstorable(plain):
            raise forms.ValidationError(wrong)
        return text


class CrontabForm(forms.ModelForm):  # type: ignore[type-arg]
    """Refuses what Celery cannot read, such as 7 for Sunday, and what never occurs, such as 31 February."""

    class Meta:
        model = CrontabSchedule
        fields = (*CRON_FIELDS, "timezone")

    def clean(self) -> Any:
        """Have Celery read each field, then all of them together."""
        fields: dict[str, Any] = super().clean() or {}
        named = {name: fields[name] for name in CRON_FIELDS if name in fields}
        for name, text in named.items():
            try:
                crontab(**{name: text})
            except (ValueError, ParseException) as error:
                self.add_error(name, f"Celery cannot read this: {error}")
        if not self.errors:
            try:
                crontab(**named)
            except ValueError:  # Each field is right by itself: no month of these has one of these days.
                day, month = named["day_of_month"], named["month_of_year"]
                self.add_error("day_of_month", f"Day '{day}' never occurs in month '{month}'; change one of them.")
        return fields
