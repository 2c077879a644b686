"""Signals of what operators see of workers; telemetry listens."""

from django.dispatch import Signal

#: A worker has come or gone, or its row says something else than before its last beat.
worker_changed = Signal()

#: A worker's report lists other tasks than its last one, or other progress.
tasks_changed = Signal()
