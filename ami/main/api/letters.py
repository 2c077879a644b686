"""Dead letters and their replays for staff: thin wrappers around `ami.queues.letters`."""

from typing import Any

from django.conf import settings
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from ami.main.api.operations import OperationsView, answers, given_in, number, refusing, takes
from ami.queues.letters import bodies, editing, found, replays, rows
from ami.queues.letters.selection import Selection, refuse_unknown_queue
from ami.queues.models import Letter, Replay
from ami.queues.wishes import LONGEST_WHY, Operator

MOST_LISTED = 500
MOST_IDS = 1000
#: A key of the database.
MOST_NUMBER = 2**63 - 1
FILTERS = ("queue", "task", "cause", "search", "state")
NUMBER = OpenApiParameter("name", OpenApiTypes.INT, OpenApiParameter.PATH)


class WhyBody(serializers.Serializer[Any]):
    """Why it is done."""

    why = serializers.CharField(max_length=LONGEST_WHY, allow_blank=True, default="")


class SelectionBody(WhyBody):
    """Which dead letters; at least one of the filters, or ``all``."""

    ids = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=MOST_NUMBER), max_length=MOST_IDS, default=list
    )
    queue = serializers.CharField(max_length=255, allow_blank=True, default="")
    task = serializers.CharField(max_length=255, allow_blank=True, default="")
    cause = serializers.CharField(max_length=40, allow_blank=True, default="")
    search = serializers.CharField(max_length=255, allow_blank=True, default="")
    all = serializers.BooleanField(default=False, help_text="without any filter: every dead letter")
    limit = serializers.IntegerField(min_value=1, max_value=MOST_NUMBER, required=False, allow_null=True, default=None)
    dry_run = serializers.BooleanField(default=False)


class ReplayBody(SelectionBody):
    """Where to, and how many letters a second."""

    to = serializers.CharField(max_length=255, allow_blank=True, default="")
    rate = serializers.FloatField(required=False, allow_null=True, default=None)


class EditBody(serializers.Serializer[Any]):
    """The new arguments; those that are left out stay."""

    args = serializers.ListField(required=False, allow_null=True, default=None)
    kwargs = serializers.DictField(required=False, allow_null=True, default=None)
    why = serializers.CharField(max_length=LONGEST_WHY)


@extend_schema(parameters=[NUMBER])
class LetterViewSet(OperationsView):
    """Dead letters, newest first; what they were published with is behind a permission of its own."""

    lookup_value_regex = r"[0-9]{1,18}"
    needs = {
        **dict.fromkeys(("list", "retrieve", "causes", "counts"), "view_letter"),
        "replay": "replay_letter",
        "discard": "discard_letter",
        "edit": "edit_letter",
        "body": "read_letter_body",
    }
    unrecorded = ("replay", "discard", "edit", "body")
    reads = {"list": (*FILTERS, "limit"), "causes": (*FILTERS, "limit"), "counts": (*FILTERS, "by")}

    @answers(*reads["list"], operation_id="letters_list")
    def list(self, request: Request) -> Response:
        """Return the newest letters, at most ``limit`` (50; 500 at most); ``state`` is ``dead`` or another one."""
        limit = number(request, "limit", MOST_LISTED, default=50)
        return Response([found.as_dict(row) for row in _rows(request).order_by("-pk").defer(*found.HEAVY)[:limit]])

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def retrieve(self, _: Request, name: str) -> Response:
        """Return one letter with its trail, and its failures with their tracebacks."""
        return Response(found.whole(_row(Letter, name)))

    @answers(*reads["causes"])
    @action(detail=False, methods=["get"])
    def causes(self, request: Request) -> Response:
        """Return the letters by cause, the most frequent first."""
        limit = number(request, "limit", MOST_LISTED, default=50)
        return Response([found.group_as_dict(group) for group in found.groups(_rows(request), limit)])

    @answers(*reads["counts"])
    @action(detail=False, methods=["get"])
    def counts(self, request: Request) -> Response:
        """Return how many letters died in each hour, or ``by=day``."""
        by = request.query_params.get("by", "hour")
        if by not in ("hour", "day"):
            raise ValidationError({"by": ["Give hour or day."]})
        counted = found.over_time(_rows(request), by_day=by == "day")
        return Response([{"from": span.isoformat(), "letters": count} for span, count in counted])

    @takes(ReplayBody, detail=False)
    def replay(self, request: Request) -> Response:
        """Begin a replay; whoever collects letters publishes them. Its address is ``replays/ID/``."""
        given, operator = given_in(ReplayBody, request), Operator(request.user, "api")
        with refusing():
            selection = _selection(given)
            if given["dry_run"]:
                return Response({"would_replay": selection.count(given["limit"])})
            options = {name: given[name] for name in ("why", "to", "rate", "limit")}
            begun = replays.in_background(replays.begin(settings.ANTENNA_TOPOLOGY, selection, operator, **options))
        return Response(replays.as_dict(begun), status=202)

    @takes(SelectionBody, detail=False)
    def discard(self, request: Request) -> Response:
        """Give letters up; their rows stay for a while."""
        given = given_in(SelectionBody, request)
        with refusing():
            selection = _selection(given)
            if given["dry_run"]:
                return Response({"would_discard": selection.count(given["limit"])})
            operator = Operator(request.user, "api")
            count = rows.discard_recorded(selection, operator, why=given["why"], limit=given["limit"])
        return Response({"discarded": count})

    @takes(EditBody)
    def edit(self, request: Request, name: str) -> Response:
        """Replay a letter with other arguments; the first ones are kept."""
        given, operator = given_in(EditBody, request), Operator(request.user, "api")
        new = {which: None if given[which] is None else editing.written(given[which]) for which in ("args", "kwargs")}
        with refusing():
            row = editing.edit(_row(Letter, name).pk, new["args"], new["kwargs"], operator, why=given["why"])
            selection = Selection(ids=(row.pk,))
            begun = replays.begin(settings.ANTENNA_TOPOLOGY, selection, operator, why=given["why"])
            replays.in_background(begun)
        return Response(replays.as_dict(begun), status=202)

    @extend_schema(responses={(200, "text/plain"): OpenApiTypes.BYTE})
    @action(detail=True, methods=["get"])
    def body(self, request: Request, name: str) -> HttpResponse:
        """Return the message as it was published, secrets included."""
        row = _row(Letter, name)
        with refusing():
            body = bodies.looked_at(row, Operator(request.user, "api"))
        return HttpResponse(body, content_type="text/plain; charset=utf-8")


@extend_schema(parameters=[NUMBER])
class ReplayViewSet(OperationsView):
    """Replays of dead letters, newest first."""

    lookup_value_regex = r"[0-9]{1,18}"
    needs = {"list": "view_letter", "retrieve": "view_letter", "stop": "replay_letter", "resume": "replay_letter"}
    unrecorded = ("stop", "resume")

    @answers(operation_id="replays_list")
    def list(self, _: Request) -> Response:
        """Return the latest 50 replays."""
        return Response([replays.as_dict(row) for row in Replay.objects.order_by("-pk")[:50]])

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def retrieve(self, _: Request, name: str) -> Response:
        """Return how far a replay is."""
        return Response(replays.as_dict(_row(Replay, name)))

    @takes(WhyBody)
    def stop(self, request: Request, name: str) -> Response:
        """Stop a replay; it can be resumed."""
        why = given_in(WhyBody, request)["why"]
        with refusing():
            return Response(replays.as_dict(replays.stop(int(name), Operator(request.user, "api"), why=why)))

    @takes(WhyBody)
    def resume(self, request: Request, name: str) -> Response:
        """Go on with a stopped replay."""
        why = given_in(WhyBody, request)["why"]
        with refusing():
            resumed = replays.resume(int(name), Operator(request.user, "api"), why=why)
        return Response(replays.as_dict(replays.in_background(resumed)))


def _rows(request: Request) -> Any:
    given = {name: request.query_params.get(name, "")[:255] for name in FILTERS}
    state = given.pop("state") or Letter.State.DEAD
    if state != "any" and state not in Letter.State.values:
        raise ValidationError({"state": [f"Give any or one of {', '.join(Letter.State.values)}."]})
    with refusing():
        refuse_unknown_queue(settings.ANTENNA_TOPOLOGY, given["queue"])
    return Selection(**given).rows("" if state == "any" else state)


def _selection(given: dict[str, Any]) -> Selection:
    filters = {name: given[name] for name in ("queue", "task", "cause", "search")}
    selection = Selection(ids=tuple(given["ids"]) or None, **filters)
    if not selection and not given["all"]:
        raise ValidationError({"all": ["Give a filter, or all: true for every dead letter."]})
    refuse_unknown_queue(settings.ANTENNA_TOPOLOGY, selection.queue)
    return selection


def _row(model: Any, name: str) -> Any:
    row = model.objects.filter(pk=int(name)).first()
    if row is None:
        raise NotFound
    return row
