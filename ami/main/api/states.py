"""The states of the queues' work, and what is disabled, for staff: thin wrappers around `ami.queues`."""

from typing import Any

from celery import current_app
from django.conf import settings
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from ami.main.api.operations import OperationsView, answers, given_in, refusing, takes
from ami.queues import disabling, states
from ami.queues.targets import Kind
from ami.queues.wishes import LONGEST_WHY, Operator


class NameBody(serializers.Serializer[Any]):
    """A task's name, or a job such as ``job:12``, and why."""

    name = serializers.CharField(max_length=255)
    why = serializers.CharField(max_length=LONGEST_WHY, allow_blank=True, default="")


class DisableBody(NameBody):
    """Until when it is disabled."""

    until = serializers.DateTimeField(required=False, allow_null=True, default=None)


class StateViewSet(OperationsView):
    """In which states the work of each queue is."""

    @answers()
    def list(self, _: Request) -> Response:
        """Return each queue's counts: initial, pending, computing, awaiting, failed, disabled."""
        with current_app.connection_for_read() as connection:
            return Response([row.as_dict() for row in states.counts(settings.ANTENNA_TOPOLOGY, connection)])

    @answers()
    @action(detail=False, methods=["get"])
    def snapshot(self, _: Request) -> Response:
        """Return by queue what is queued, running, completed and failed, and how many workers consume it."""
        with current_app.connection_for_read() as connection:
            return Response(states.ingest_snapshot(settings.ANTENNA_TOPOLOGY, connection))


class DisabledViewSet(OperationsView):
    """Tasks and jobs that are disabled, with how many messages are set aside."""

    needs = {"disable": "disable_task", "enable": "disable_task"}
    unrecorded = ("disable", "enable")
    serializer_class = NameBody

    @answers()
    def list(self, request: Request) -> Response:
        """Return what is disabled; a job only to who may see jobs, or disable them."""
        sees_jobs = any(map(request.user.has_perm, ("jobs.view_job", "queues.disable_task")))
        found = [row for row in disabling.listed() if sees_jobs or row.kind != Kind.JOB]
        return Response([disabling.as_dict(row) for row in found])

    @takes(DisableBody, detail=False)
    def disable(self, request: Request) -> Response:
        """Set what begins from now on aside."""
        given, operator = given_in(DisableBody, request), Operator(request.user, "api")
        with refusing():
            disabling.disable(given["name"], operator, why=given["why"], until=given["until"])
        return Response({"disabled": given["name"]})

    @takes(NameBody, detail=False)
    def enable(self, request: Request) -> Response:
        """Let it run again; what was set aside comes back within seconds."""
        given, operator = given_in(NameBody, request), Operator(request.user, "api")
        with refusing():
            disabling.enable(given["name"], operator, why=given["why"])
        return Response({"enabled": given["name"]})
