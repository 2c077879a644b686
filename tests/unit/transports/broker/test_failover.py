"""kombu's failover to a broker over object storage: its URL is read in full, whichever came before."""

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu import Connection, Queue

from ami.transports import register

UNREACHABLE = "amqp://guest@127.0.0.1:1/vhost"
URLS = [
    "objectstore+file:///var/lib/a%20folder/Broker",
    "objectstore+memory://",
    "objectstore+memory://Name",
    "objectstore+s3://bucket",
    "objectstore+s3://bucket/a/Prefix",
    "objectstore+gs://bucket/prefix",
    "objectstore+az://container/prefix",
]
FIRST = [UNREACHABLE, "objectstore+file:///nowhere/x", "objectstore+s3://other/vhost"]


@pytest.fixture(autouse=True)
def _registered() -> None:
    register()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[str]:
    """The URL of a folder whose path needs quoting."""
    return f"objectstore+{(tmp_path / 'a folder').as_uri()}"


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("first", FIRST)
def test_a_switched_connection_has_the_whole_url(url, first):
    direct = Connection(url).transport._address
    switched = Connection([first, url])
    switched.maybe_switch_next()
    copies = [switched, switched.clone(), switched.clone().clone(), copy.copy(switched)]
    copies.append(pickle.loads(pickle.dumps(switched)))  # noqa: S301 - its own
    for connection in copies:
        assert connection.transport._address == direct
        assert Connection(connection.as_uri()).transport._address == direct
        assert connection.transport.driver_type == "objectstore"


@pytest.mark.parametrize("bad", ["bad.invalid", UNREACHABLE, "objectstore+file:///proc/nowhere/broker"])
def test_failover_publishes_and_consumes(folder, bad):
    with Connection([bad, folder], connect_timeout=1) as connection:
        queue = connection.SimpleQueue("moths")
        queue.put("x")
        assert queue.get(timeout=60).payload == "x"
        queue.close()
        assert connection.as_uri() == folder
    with Connection(folder) as connection:
        assert Queue("moths")(connection.default_channel).queue_declare(passive=True).message_count == 1


def test_failover_goes_on_to_another_kind_of_broker(folder):
    with Connection([folder, "memory://"]) as connection:
        connection.connect()
        connection.maybe_switch_next()
        queue = connection.SimpleQueue("moths")
        queue.put("x")
        assert queue.get(timeout=60).payload == "x"


def test_celery_publishes_to_the_second_of_its_urls(folder):
    app: Any = Celery("failover", broker=[UNREACHABLE, folder], set_as_current=False)
    app.conf.broker_connection_timeout = 1
    app.send_task("task", retry_policy={"max_retries": 3, "interval_start": 0, "interval_step": 0})
    app.close()
    with Connection(folder) as connection:
        assert Queue("celery")(connection.default_channel).queue_declare(passive=True).message_count == 1


def test_a_refused_url_is_shown_without_its_password():
    connection = Connection("objectstore+s3://key:secret@bucket")
    assert "secret" not in connection.as_uri()
    assert "secret" not in repr(connection)
    switched = Connection([UNREACHABLE, "objectstore+s3://key:secret@bucket"])
    switched.maybe_switch_next()
    with pytest.raises(ValueError, match="credentials belong into the environment"):
        switched.connect()
    assert "secret" not in switched.as_uri()
