"""The web process of the pictures: this one, on SQLite and an empty broker in a folder of its own."""

import os
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer


def configure(folder: Path) -> None:
    """Set Django up on a new database; the environment of the caller is not asked."""
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "config.settings.local",
        "DATABASE_URL": f"sqlite:///{folder / 'antenna.sqlite3'}",
        "CELERY_BROKER_URL": "objectstore+memory://screenshots",
        "ANTENNA_MEDIA_ROOT": str(folder / "media"),
        "ANTENNA_RESULTS_ROOT": str(folder / "results"),
        "GOVERNOR_STATE_DIR": str(folder / "governor"),
        "DJANGO_DEBUG": "0",
        "ANTENNA_LOG_LEVEL": "ERROR",
        "FLOWER_URL": "http://127.0.0.1:5555",
        "REDIS_URL": "",
        "RABBITMQ_MANAGEMENT_URL": "",
    }
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(static: Path) -> Iterator[str]:
    """Serve the site with its static files on a free port; give its address, without a slash at its end."""
    from django.conf import settings

    from tests.support.browser.site import collect_static

    settings.STATIC_ROOT = str(static)
    settings.WHITENOISE_AUTOREFRESH = True
    static.mkdir()
    collect_static(static)
    from config.wsgi import application

    with _Server(("127.0.0.1", 0), _Silent) as server:
        server.set_app(application)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        settings.ANTENNA_PUBLIC_URL = address
        yield address
        server.shutdown()
