"""Queues, workers, tasks and the audit log for staff: thin wrappers around the operations of `ami.queues`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from celery import current_app
from django.conf import settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from ami.main.api.parameters import KnownParameters
from ami.queues import cancellations, messages, overview, pauses, task_state, worker_operations
from ami.queues.confirmations import WAIT_SECONDS
from ami.queues.refusals import Refused
from ami.queues.wishes import LONGEST_WHY, Operator

#: A request of web may not wait as long as the command: 0 s answers at once with who has confirmed so far.
MOST_WAIT_SECONDS = 10.0
#: Of one request; the command moves any number.
MOST_MOVED = 1000
NAME = OpenApiParameter("name", OpenApiTypes.STR, OpenApiParameter.PATH)
NO_NAME = OpenApiParameter("name", exclude=True)


def answers(*query: str, **described: Any) -> Any:
    """Describe an endpoint that answers JSON and has no name in its path; ``query`` are its query's parameters."""
    named = [OpenApiParameter(each, OpenApiTypes.INT if each == "limit" else OpenApiTypes.STR) for each in query]
    return extend_schema(responses=OpenApiTypes.OBJECT, parameters=[NO_NAME, *named], **described)


def takes(body: type[serializers.Serializer[Any]], *, detail: bool = True) -> Callable[[Any], Any]:
    """Make a method a `POST` endpoint with a body; without ``detail`` it has no name in its path."""
    described = extend_schema(request=body, responses=OpenApiTypes.OBJECT, parameters=[] if detail else [NO_NAME])
    return lambda method: described(action(detail=detail, methods=["post"], serializer_class=body)(method))


class OperatorPermission(BasePermission):
    """Staff may look; what changes something needs the permission that the view names for it."""

    def has_permission(self, request: Request, view: Any) -> bool:
        user = request.user
        if not (user and user.is_authenticated and user.is_staff):
            return False
        needed = view.needs.get(view.action, "")
        return not needed or user.has_perm(f"queues.{needed}")


class WishBody(serializers.Serializer[Any]):
    """Why it is done, until when, and how long to wait for the workers to confirm."""

    why = serializers.CharField(max_length=LONGEST_WHY, allow_blank=True, default="")
    until = serializers.DateTimeField(required=False, allow_null=True, default=None)
    wait_seconds = serializers.FloatField(min_value=0, max_value=MOST_WAIT_SECONDS, default=5.0)


class ScaleBody(WishBody):
    """How many processes each worker gets; 0 for what it was started with."""

    count = serializers.IntegerField(min_value=0, max_value=10_000)


class PurgeBody(serializers.Serializer[Any]):
    """Why messages are deleted; with ``dry_run`` they are only counted."""

    why = serializers.CharField(max_length=LONGEST_WHY, allow_blank=True, default="")
    dry_run = serializers.BooleanField(default=False)


class CountedPurgeBody(PurgeBody):
    """``count`` is about how many wait: the purge is refused without it, and where it is another."""

    count = serializers.IntegerField(min_value=0, required=False, default=None)


class MoveBody(PurgeBody):
    """Where to, and which messages: of one task, with these headers, at most so many."""

    to = serializers.CharField(max_length=255)
    task = serializers.CharField(max_length=255, allow_blank=True, default="")
    headers = serializers.DictField(child=serializers.CharField(max_length=255), default=dict)
    limit = serializers.IntegerField(min_value=1, max_value=MOST_MOVED, default=MOST_MOVED)


class ConfirmedAnswer(serializers.Serializer[Any]):
    """Nodes that have confirmed, that have not, whose beat is stale; and the queues that are left without a worker."""

    confirmed = serializers.ListField(child=serializers.CharField())
    missing = serializers.ListField(child=serializers.CharField())
    stale = serializers.ListField(child=serializers.CharField())
    left = serializers.ListField(child=serializers.CharField())


class OperationsView(KnownParameters, viewsets.GenericViewSet[Any]):
    """What the views of this module share."""

    permission_classes = (OperatorPermission,)
    serializer_class = WishBody
    pagination_class = None
    lookup_url_kwarg = "name"
    lookup_value_regex = r"[^/]{1,255}"
    #: The permission that an action needs, as in `ami.queues.models.DesiredState`.
    needs: dict[str, str] = {}


def wish(operation: Callable[..., Any], about: str, *more: str, body: type[WishBody] = WishBody) -> Any:
    """Make an operation a `POST` endpoint that waits for the workers' confirmation; ``more`` are fields it takes."""

    def endpoint(_: OperationsView, request: Request, name: str) -> Response:
        values = given_in(body, request)
        options: dict[str, Any] = {"why": values["why"]}
        if values["until"] is not None:
            options["until"] = values["until"]
        if operation is not worker_operations.restart:
            options["seconds"] = min(values["wait_seconds"], WAIT_SECONDS)
        operator = Operator(request.user, "api")
        try:
            with refusing():
                found = operation(settings.ANTENNA_TOPOLOGY, name, *map(values.get, more), operator, **options)
        except TypeError:
            raise ValidationError({"until": ["This operation does not undo itself."]}) from None
        return Response(ConfirmedAnswer(asdict(found)).data)

    endpoint.__name__, endpoint.__doc__ = operation.__name__, about
    return extend_schema(request=body, responses=ConfirmedAnswer)(action(detail=True, methods=["post"])(endpoint))


@extend_schema(parameters=[NAME])
class QueueViewSet(OperationsView):
    """The queues, what waits in them, and who paused them."""

    needs = {
        "pause": "pause_queue",
        "resume": "pause_queue",
        "peek": "peek_queue",
        "purge": "purge_queue",
        "move": "move_messages",
    }
    unrecorded = ("pause", "resume", "purge", "move")
    reads = {"peek": ("limit",)}

    @answers()
    def list(self, _: Request) -> Response:
        """Return every consumed queue."""
        with current_app.connection_for_read() as connection:
            return Response([asdict(row) for row in overview.queues(settings.ANTENNA_TOPOLOGY, connection)])

    pause = wish(pauses.pause, "Pause the queue on every worker; it lasts over restarts.")
    resume = wish(pauses.resume, "Resume the queue.")

    @extend_schema(responses=OpenApiTypes.OBJECT, parameters=[OpenApiParameter("limit", OpenApiTypes.INT)])
    @action(detail=True, methods=["get"])
    def peek(self, request: Request, name: str) -> Response:
        """Return the oldest messages; on RabbitMQ's work queues this costs one delivery of each."""
        limit = number(request, "limit", messages.MOST_PEEKED)
        with refusing(), current_app.connection_for_read() as connection:
            found = messages.peek(settings.ANTENNA_TOPOLOGY, connection, name, limit)
        return Response(asdict(found))

    @takes(CountedPurgeBody)
    def purge(self, request: Request, name: str) -> Response:
        """Delete what waits in the queue: about ``count`` messages, which ``dry_run`` tells."""
        given = given_in(CountedPurgeBody, request)
        topology = settings.ANTENNA_TOPOLOGY
        with refusing(), current_app.connection_for_write() as connection:
            messages.refuse_unknown(topology, name)
            count, expected = messages.purgeable(connection, name), given["count"]
            if given["dry_run"]:
                return Response({"would_purge": count})
            if expected is None:
                raise ValidationError({"count": [f"{count} wait in {name}; give that number to delete them."]})
            operator = Operator(request.user, "api")
            count = messages.purge(topology, connection, name, operator, why=given["why"], expected=expected)
        return Response({"purged": count})

    @takes(MoveBody)
    def move(self, request: Request, name: str) -> Response:
        """Move messages to another queue."""
        given = given_in(MoveBody, request)
        options = {option: given[option] for option in ("why", "task", "headers", "limit")}
        with refusing(), current_app.connection_for_write() as connection:
            if given["dry_run"]:
                messages.refuse_unknown(settings.ANTENNA_TOPOLOGY, name)
                return Response({"would_look_at": messages.waiting(connection, name)})
            operator = Operator(request.user, "api")
            moved = messages.move(settings.ANTENNA_TOPOLOGY, connection, name, given["to"], operator, **options)
        return Response(asdict(moved))


@extend_schema(parameters=[NAME])
class WorkerViewSet(OperationsView):
    """The workers; ``name`` is a node, a service or a host."""

    unrecorded = ("park", "stop", "unpark", "scale", "restart")
    needs = dict.fromkeys(unrecorded, "control_workers")

    @answers()
    def list(self, _: Request) -> Response:
        """Return every worker that has not ended in order."""
        return Response([asdict(row) for row in overview.workers()])

    park = wish(worker_operations.park, "Let the workers finish what runs and take nothing more.")
    stop = wish(worker_operations.stop, "Park the workers and end what they run.")
    unpark = wish(worker_operations.unpark, "Let the workers take tasks again.")
    scale = wish(worker_operations.scale, "Set the number of processes of each worker.", "count", body=ScaleBody)
    restart = wish(worker_operations.restart, "Replace the processes of the workers one after the other.")


@extend_schema(parameters=[NAME])
class TaskViewSet(OperationsView):
    """Single tasks, by their id."""

    needs = {"cancel": "cancel_task", "state": "view_taskrun"}
    unrecorded = ("cancel",)
    reads = {"state": ("search",)}

    @extend_schema(responses=OpenApiTypes.OBJECT, parameters=[OpenApiParameter("search", OpenApiTypes.BOOL)])
    @action(detail=True, methods=["get"])
    def state(self, request: Request, name: str) -> Response:
        """Return where the task is; ``search`` looks at the head of every queue, which needs its permission."""
        if request.query_params.get("search", "") not in ("1", "true"):
            return Response(asdict(task_state.of(name)))
        if not request.user.has_perm("queues.peek_queue"):
            raise PermissionDenied
        with current_app.connection_for_read() as connection:
            return Response(asdict(task_state.search(settings.ANTENNA_TOPOLOGY, connection, name)))

    @takes(WishBody)
    def cancel(self, request: Request, name: str) -> Response:
        """Cancel the task wherever it is."""
        given = given_in(WishBody, request)
        with refusing():
            found = cancellations.cancel(name, Operator(request.user, "api"), why=given["why"])
        return Response(asdict(found))


def number(request: Request, name: str, most: int, default: int | None = None) -> int:
    """Return a number of the query; one that is missing is ``default``, else ``most``."""
    text = request.query_params.get(name, str(default or most))
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text[:6]) <= most:
        raise ValidationError({name: [f"Give a number from 1 to {most}."]})
    return int(text)


def given_in(kind: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """Return the checked values of a request's body."""
    body = kind(data=request.data)
    body.is_valid(raise_exception=True)
    return dict(body.validated_data)


@contextmanager
def refusing() -> Iterator[None]:
    """Answer 400 with the operation's sentence."""
    try:
        yield
    except Refused as error:
        raise ValidationError({"detail": str(error)}) from error
