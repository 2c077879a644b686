"""Celery's results in Redis, over connections that are kept alive as all others are."""

from typing import Any

from celery.backends.redis import RedisBackend
from django.conf import settings

from ami.celery import sensitive
from config.settings.keepalive import tcp_options


class Backend(RedisBackend):
    """Celery's own, which has no setting for the options of its sockets, and stores every argument."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "host" in self.connparams:  # Not a socket in the file system.
            self.connparams["socket_keepalive"] = True
            self.connparams["socket_keepalive_options"] = tcp_options(settings.ANTENNA_KEEPALIVE_SECONDS)

    def _get_result_meta(self, result: Any, state: str, traceback: Any, request: Any, **options: Any) -> dict[str, Any]:
        """Return what is stored; without the values of sensitive arguments."""
        meta: dict[str, Any] = super()._get_result_meta(result, state, traceback, request, **options)
        if "args" in meta and (shown := sensitive.masked(self.app, request.task, request.args, request.kwargs)):
            meta["args"], meta["kwargs"] = shown
        return meta
