"""Invalid input in the admin's forms and filters is reported; no input is lost and no page fails."""

import json
import logging

import pytest
from django.contrib import admin
from django.db import models
from django.test import Client, RequestFactory
from django.urls import ResolverMatch
from django_celery_beat.models import CrontabSchedule, PeriodicTask
from django_celery_results.models import TaskResult

from ami.main.models import Deployment, Project, Taxon
from ami.ml.models import AlgorithmCategoryMap, Pipeline, ProcessingService
from ami.queues.admin_site.checked_values import NOT_FINITE, UNSTORABLE
from ami.queues.middleware import REFUSED, FailedViewMiddleware
from tests.support.product import admin_rows, factories
from tests.support.product.admin_pages import MODELS, address, one_list_of_apps

OUTSIDE_THE_CALENDAR = ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59")
NO_KEYS = ("\x00", "9" * 30)
SURROGATE = '{"a": ["\\ud800"]}'


def sign_in():
    client = Client()
    client.force_login(factories.user(is_staff=True, is_superuser=True))
    return client


@pytest.fixture
def pages(db):
    """A superuser's browser."""
    with one_list_of_apps():
        yield sign_in()


def errors(answer, field):
    """Return the errors of a field in a redisplayed form."""
    assert answer.status_code == 200
    return list(answer.context["adminform"].form.errors.get(field, []))


def refused(answer):
    """Whether the list is shown without the filter."""
    return answer.status_code == 302 and answer.headers["Location"].endswith("?e=1")


@pytest.mark.django_db(transaction=True)
def test_out_of_range_date_is_not_a_filter():
    pages = sign_in()
    served = []
    for model in MODELS:
        dates = [field.name for field in model._meta.concrete_fields if isinstance(field, models.DateTimeField)]
        for name in dates[:1]:
            for date in OUTSIDE_THE_CALENDAR:
                answer = pages.get(address(model, "changelist"), {f"{name}__gte": date})
                served += [] if refused(answer) else [(model.__name__, name, date, answer.status_code)]
    assert not served


def test_year_beyond_the_calendar_is_not_a_filter(pages):
    from ami.main.models import Event

    for year in ("9999", "0", "9" * 30, "x"):
        assert refused(pages.get(address(Event, "changelist"), {"group_by__year": year})), year


def test_error_of_an_unfiltered_list_is_not_hidden(pages, monkeypatch):
    def fail(*_):
        raise OverflowError("a row that cannot be read")

    monkeypatch.setattr("django.contrib.admin.options.ModelAdmin.get_changelist_instance", fail)
    with pytest.raises(OverflowError):
        pages.get(address(Project, "changelist"))
    assert refused(pages.get(address(Project, "changelist"), {"name": "x"}))


def test_text_in_place_of_a_key_is_a_form_error(pages):
    tried = set()
    for model in MODELS:
        shown = admin.site._registry[model]
        names = [*shown.autocomplete_fields, *shown.raw_id_fields]
        for text in NO_KEYS if names else ():
            answer = pages.post(address(model, "add"), dict.fromkeys(names, text))
            if answer.status_code == 403:
                break  # Such rows cannot be added.
            assert not [name for name in names if not errors(answer, name)], (model, text)
            tried.add(model)
    assert {Deployment, Taxon, Project} <= tried
    assert len(tried) > 10


def test_invalid_choice_keeps_the_other_choices(pages):
    project = factories.project()
    answer = pages.post(address(Taxon, "add"), {"projects": [project.pk, "x"], "name": "Noctua pronuba"})
    assert errors(answer, "projects")
    page = answer.content.decode()
    assert f'<option value="{project.pk}" selected>' in page
    assert 'value="Noctua pronuba"' in page


def json_fields():
    """Every JSON field of an add form, without inlines."""
    for model in MODELS:
        shown = admin.site._registry[model]
        for field in model._meta.concrete_fields:
            if isinstance(field, models.JSONField) and field.editable and field.name not in shown.readonly_fields:
                yield model, field.name


def test_unstorable_json_is_redisplayed_as_entered(pages):
    tried = set()
    for model, name in json_fields():
        page = address(model, "add")
        if pages.get(page).status_code == 403:
            continue
        shown = pages.post(page, {name: SURROGATE})
        assert errors(shown, name) == [UNSTORABLE], (model, name)
        assert "\\ud800" in shown.content.decode()
        tried.add(model)
    assert {Project, Pipeline, AlgorithmCategoryMap} <= tried


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('"\\ud800"', UNSTORABLE),
        ('{"\\udfff": 1}', UNSTORABLE),
        ('{"a": "\\u0000"}', UNSTORABLE),
        ('{"a": NaN}', NOT_FINITE),
        ('{"a": 1e999}', NOT_FINITE),
        ("9" * 5000, "Enter a valid JSON."),
        ("[" * 20_000, "Enter a valid JSON."),
        ("[1]", "Must be an object."),
        ("1e308", "Must be an object."),
    ],
)
def test_wrong_json_is_refused_with_the_reason(pages, text, sentence):
    project = factories.project()
    answer = pages.post(address(Project, "change", project.pk), {"name": "Kept", "feature_flags": text})
    assert errors(answer, "feature_flags") == [sentence]
    assert 'value="Kept"' in answer.content.decode()
    project.refresh_from_db()
    assert project.name != "Kept"


@pytest.mark.parametrize("text", ['{"a": "\\\\u0000"}', '{"a": "\\ud83e\\udd8b"}', '{"a": 1e10}'])
def test_unusual_valid_json_is_saved(pages, text):
    row = Pipeline.objects.create(name="Pipeline", slug="pipeline")
    inlines = {"project_configs-TOTAL_FORMS": 0, "project_configs-INITIAL_FORMS": 0}
    values = {"name": "Pipeline", "slug": "pipeline", "version": 1, "stages": "[]", "algorithms": []}
    answer = pages.post(address(Pipeline, "change", row.pk), {**values, **inlines, "default_config": text})
    assert answer.status_code == 302, answer.context["errors"]
    row.refresh_from_db()
    assert row.default_config == json.loads(text)


def test_inlines_are_checked_like_forms(pages):
    row = Pipeline.objects.create(name="Pipeline", slug="pipeline")
    inlines = {"project_configs-TOTAL_FORMS": 1, "project_configs-INITIAL_FORMS": 0}
    inlines |= {"project_configs-0-config": SURROGATE, "project_configs-0-project": "x"}
    answer = pages.post(address(Pipeline, "change", row.pk), {"name": "x", **inlines})
    assert answer.status_code == 200
    (formset,) = answer.context["inline_admin_formsets"]
    assert formset.formset.errors[0]["config"] == [UNSTORABLE]
    assert "project" in formset.formset.errors[0]


def test_json_left_empty_is_the_default(pages):
    page = address(AlgorithmCategoryMap, "add")
    assert errors(pages.post(page, {"labels": "1e308"}), "labels") == ["Must be a list."]
    assert pages.post(page, {"labels": "", "data": "", "version": "1"}).status_code == 302
    made = AlgorithmCategoryMap.objects.get()
    assert (made.labels, made.data) == ([], [])


def test_taken_name_is_refused_where_the_project_is_read_only(pages):
    taken, row = admin_rows.service(), admin_rows.service()
    values = {"name": taken.name, "endpoint_url": row.endpoint_url}
    answer = pages.post(address(ProcessingService, "change", row.pk), values)
    assert errors(answer, "__all__")
    row.refresh_from_db()
    assert row.name != taken.name


@pytest.mark.parametrize("text", ["-1", "-/7", "7"])
def test_schedule_that_celery_cannot_read_is_refused(pages, text):
    everything = {"minute": "*", "hour": "*", "day_of_month": "*", "month_of_year": "*", "timezone": "UTC"}
    assert errors(pages.post(address(CrontabSchedule, "add"), {**everything, "day_of_week": text}), "day_of_week")
    assert not CrontabSchedule.objects.exists()
    row = CrontabSchedule.objects.create(timezone="UTC")
    page = address(CrontabSchedule, "change", row.pk)
    assert errors(pages.post(page, {**everything, "day_of_week": text}), "day_of_week")
    inlines = {"periodictask_set-TOTAL_FORMS": 0, "periodictask_set-INITIAL_FORMS": 0}
    answer = pages.post(page, {**everything, **inlines, "day_of_week": "mon,0"})
    assert answer.status_code == 302, answer.context["errors"]


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("task", "a" * 5000),
        ("args", "{}"),
        ("args", '["\\ud800"]'),
        ("args", "[" * 20_000),
        ("kwargs", "[]"),
        ("kwargs", '{"__type__": "uuid", "__value__": 1}'),
        ("headers", "1"),
    ],
)
def test_invalid_schedule_entry_is_a_form_error(pages, field, text):
    entry = admin_rows.entry()
    values = {"name": "Kept", "task": entry.task, "args": "[]", "kwargs": "{}", "interval": entry.interval_id}
    answer = pages.post(address(PeriodicTask, "change", entry.pk), {**values, field: text})
    assert errors(answer, field)
    assert 'value="Kept"' in answer.content.decode()


def test_task_results_cannot_be_added(pages):
    assert pages.get(address(TaskResult, "add")).status_code == 403
    assert pages.post(address(TaskResult, "add"), {}).status_code == 403
    assert not TaskResult.objects.exists()


def test_unexpected_unstorable_text_is_a_logged_400(pages, caplog):
    body = b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\n\\ud800\r\n--x--\r\n'
    with caplog.at_level(logging.ERROR, logger="ami.queues.middleware"):
        answer = pages.generic(
            "POST",
            address(Project, "add"),
            body,
            content_type="multipart/form-data; boundary=x; charset=unicode_escape",
        )
    assert (answer.status_code, answer.content.decode()) == (400, REFUSED)
    assert "UnicodeEncodeError" in caplog.text
    assert not Project.objects.exists()


def test_unrelated_errors_are_not_hidden():
    middleware = FailedViewMiddleware(lambda _: None)
    fault = OverflowError("too large")

    def answered(path, error, namespaces, query="?a=1"):
        request = RequestFactory().get(path + query)
        request.resolver_match = ResolverMatch(lambda _: None, (), {}, app_names=namespaces)
        return middleware.process_exception(request, error)

    assert answered("/admin/main/project/", fault, ["admin"]).status_code == 400
    assert answered("/api/v2/projects/", fault, ["api"]) is None
    assert answered("/admin/main/project/", ValueError("a mistake"), ["admin"]) is None
    assert answered("/admin/main/project/", fault, ["admin"], query="") is None


def test_a_station_is_saved_as_before(pages):
    project = factories.project()
    answer = pages.post(address(Deployment, "add"), {"name": "Station", "project": project.pk, "time_zone": "UTC"})
    assert answer.status_code == 302, answer.context["errors"]
    assert Deployment.objects.get().project == project


NEVER = [("31", "2"), ("30", "2"), ("30,31", "feb"), ("30-31", "2"), ("31", "4,6,9,11"), ("31", "2-4/2"), ("31", "nov")]
RARE = [("29", "2"), ("29-31", "2"), ("31", "2,3"), ("*/30,31", "2"), ("31", "*/2")]


@pytest.mark.parametrize(("day", "month"), [*NEVER, *RARE])
def test_day_that_its_months_never_have_is_refused(pages, day, month):
    page = address(CrontabSchedule, "add")
    values = {"minute": "0", "hour": "*", "day_of_month": day, "month_of_year": month, "timezone": "UTC"}
    values |= {"periodictask_set-TOTAL_FORMS": 0, "periodictask_set-INITIAL_FORMS": 0}
    answer = pages.post(page, {**values, "day_of_week": "mon"})
    if (day, month) in RARE:
        assert answer.status_code == 302, answer.context["errors"]
    else:
        sentence = f"Day '{day}' never occurs in month '{month}'; change one of them."
        assert errors(answer, "day_of_month") == [sentence]
        assert len(answer.context["adminform"].form.errors) == 1
    both = pages.post(page, {**values, "day_of_week": "7"})
    assert len(both.context["adminform"].form.errors) == 1, "the days are looked at when each field is right"
