"""A deployment for real clients: the web server, workers, and one project with pictures."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from django.conf import settings
from django.db import connection

from ami.jobs.models import Job
from ami.jobs.services import jetstream
from tests.support.own_database import own_database
from tests.support.place import RABBITMQ, Place, new_place
from tests.support.product.job_setup import World, new_world
from tests.support.web_server import Web, free_port, start_web

PASSWORD = "a password of eight words or so"
BASE = "/api/v2"


@dataclass
class Deployment:
    """A running web server with its project and captures."""

    web: Web
    place: Place
    world: World
    captures: list[Any]

    def client(self, token: str = "") -> httpx.Client:
        """Return a plain HTTP client; ``token`` goes into the header that real clients send."""
        headers = {"Authorization": f"Token {token}"} if token else {}
        return httpx.Client(base_url=f"{self.web.url}{BASE}", headers=headers, timeout=30, verify=False)

    def log_in(self) -> str:
        """Return a token from the login endpoint."""
        with self.client() as client:
            body = {"email": self.world.user.email, "password": PASSWORD}
            answer = client.post("/auth/token/login/", json=body)
            assert answer.status_code == 200, answer.text
            return str(answer.json()["auth_token"])


def own_job_numbers() -> None:
    """Start job numbers at a random value: streams are named after them, and databases share the NATS server."""
    if connection.vendor == "sqlite":
        return  # A private NATS then has no other database's streams.
    with connection.cursor() as cursor:
        sequence = "SELECT setval(pg_get_serial_sequence('jobs_job', 'id'), %s)"
        cursor.execute(sequence, [random.randrange(10**9, 2 * 10**9, 1000)])


@contextmanager
def deployed(broker: str = RABBITMQ, *, images: int = 6, **environment: str) -> Iterator[Deployment]:
    """Run the deployment on its own database, with variables for its processes; remove both afterwards."""
    with own_database("contract"), new_place("contract", broker) as place:
        place.environment |= environment
        own_job_numbers()
        world = new_world("contract")
        world.user.set_password(PASSWORD)
        world.user.is_staff = True
        world.user.save()
        captures = world.captures(images)
        port = free_port()
        place.use_test_database()
        place.environment["ANTENNA_TEST_FOLDER"] = str(Path(settings.MEDIA_ROOT).parent)
        place.environment["ANTENNA_PUBLIC_URL"] = f"http://127.0.0.1:{port}"
        web = start_web(place, port)
        place.workers("antenna-interactive", "antenna-ingest")
        web.await_ready()
        yield Deployment(web, place, world, captures)
        place.close()
        for job in Job.objects.all():
            jetstream.delete_job(job.pk)
        jetstream.close()
