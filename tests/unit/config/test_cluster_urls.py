"""CELERY_BROKER_URL with the nodes of a cluster: each is a whole URL, and all name one virtual host."""

import pytest

from .conftest import GOOD, SECRETS, Run

pytestmark = pytest.mark.processes

NODES = ("rabbitmq", "rabbitmq_2", "rabbitmq_3")
WHOLE = ";".join(f"amqp://antenna:{SECRETS['broker']}@{node}:5672/antenna" for node in NODES)
WRONG = {
    "a node without a password": (f"{WHOLE};amqp://rabbitmq_4:5672/antenna", "carries no password"),
    "a node of another kind": (f"{WHOLE};redis://:wrong-secret@redis:6379/0", "begins with none of amqp://"),
    "a node without a scheme": (f"{WHOLE};rabbitmq_4:5672", "begins with none of amqp://"),
    "a node without a host": (f"{WHOLE};amqp://antenna:wrong-secret@/antenna", "names no host"),
    "another virtual host": (f"{WHOLE};amqp://antenna:wrong-secret@rabbitmq_4:5672/anntena", "different virtual hosts"),
    "a separator too many": (f"{WHOLE};", "begins with none of amqp://"),
    "a node left as it was": (f"{WHOLE};amqp://antenna:change-me@rabbitmq_4:5672/antenna", "placeholder"),
}
SHOW = """
from celery import current_app
from ami.celery.broker_kind import kind_of
import config.celery_app
with current_app.connection_for_write() as connection:
    print(connection.virtual_host, len(connection.alt), kind_of(connection).is_managed, connection.as_uri())
    print(connection.transport_options["confirm_publish"])
"""


@pytest.mark.parametrize(("value", "remedy"), WRONG.values(), ids=WRONG)
def test_a_wrong_node_stops_the_process_and_no_secret_is_repeated(run: Run, value: str, remedy: str):
    done = run("manage.py", "check", CELERY_BROKER_URL=value)
    assert done.returncode == 1
    assert done.stderr.startswith("Configuration refused: CELERY_BROKER_URL ")
    assert done.stderr.count("\n") == 1
    assert remedy in done.stderr
    assert [secret for secret in (*SECRETS.values(), "wrong-secret") if secret in done.stderr] == []


def test_a_whole_cluster_is_taken_and_kombu_knows_every_node(run: Run):
    done = run("-c", SHOW, CELERY_BROKER_URL=WHOLE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "antenna 3 True amqp://antenna:**@rabbitmq:5672/antenna\nTrue\n"


def test_one_node_stays_a_plain_url(run: Run):
    done = run("-c", SHOW, CELERY_BROKER_URL=GOOD["CELERY_BROKER_URL"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("antenna 0 True ")
