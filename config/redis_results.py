"""Celery's results in Redis, over connections that are kept alive as all others are."""

from typing import Any

from celery.backends.redis import RedisBackend
from django.conf import settings

from config.settings.keepalive import tcp_options


class Backend(RedisBackend):
    """Celery's own, which has no setting for the options of its sockets."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "host" in self.connparams:  # Not a socket in the file system.
            self.connparams["socket_keepalive"] = True
            self.connparams["socket_keepalive_options"] = tcp_options(settings.ANTENNA_KEEPALIVE_SECONDS)
