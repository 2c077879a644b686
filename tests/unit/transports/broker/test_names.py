"""Names of queues: every one that AMQP carries has a folder of its own, and no other is declared."""

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from amqp.exceptions import AccessRefused, PreconditionFailed
from hypothesis import given
from hypothesis import strategies as st
from kombu import Connection

from ami.transports.objectstore.__main__ import main
from ami.transports.objectstore.broker.names import FILE_NAME_BYTES, file_name
from tests.support.transports.messages import depth

ODD = (".", "..", ".hidden", "a/b", "../up", "%2E", "%", "~", "ünï", " ", "a\nb", "\0", "é" * 127, "/" * 255, "n" * 255)


def publish(channel, queue: str, body: str) -> None:
    channel.basic_publish(channel.prepare_message(body), exchange="", routing_key=queue)


def test_every_odd_name_is_a_queue_of_its_own(connect):
    connection = connect()
    channel = connection.default_channel
    for name in ODD:
        channel.queue_declare(queue=name, durable=True)
        publish(channel, name, f"one of {name}")
    assert [bytes(channel.basic_get(name, no_ack=True).body).decode() for name in ODD] == [f"one of {n}" for n in ODD]


def test_deleting_queues_of_dots_spares_the_other_queues(connect):
    connection = connect()
    channel = connection.default_channel
    for name in ("kept", ".", ".."):
        channel.queue_declare(queue=name, durable=True)
        publish(channel, name, "x")
    assert [channel.queue_delete(name) for name in (".", "..")] == [1, 1]
    assert depth(connection, "kept") == 1


@pytest.mark.parametrize("name", ["n" * 256, "é" * 128, "half \ud800"], ids=["ascii", "utf-8", "surrogate"])
def test_a_name_that_amqp_cannot_carry_leaves_nothing_behind(connect, name):
    connection = connect()
    channel = connection.default_channel
    channel.queue_declare(queue="q", durable=True)
    channel.exchange_declare("x", "direct", durable=True)
    before = connection.transport.broker.declarations.current(fresh=True)
    for refused in (
        lambda: channel.queue_declare(queue=name, durable=True),
        lambda: channel.exchange_declare(name, "direct"),
        lambda: channel.queue_bind("q", "x", name),
        lambda: publish(channel, name, "x"),
    ):
        with pytest.raises(PreconditionFailed, match="255 are allowed|half a surrogate"):
            refused()
    assert connection.transport.broker.declarations.current(fresh=True) == before


def test_reserved_names_are_refused(connect):
    channel = connect().default_channel
    for refused in (
        lambda: channel.queue_declare(queue="amq.mine"),
        lambda: channel.exchange_declare("amq.mine", "direct"),
    ):
        with pytest.raises(AccessRefused, match="reserved prefix"):
            refused()


def test_check_names_queues_whose_folder_is_abbreviated(folder_url, tmp_path, capsys):
    names = ["plain", "..", "/" * 255]
    with Connection(folder_url) as connection:
        for name in names:
            connection.default_channel.queue_declare(queue=name, durable=True)
            publish(connection.default_channel, name, "x")
    assert main(["check", str(tmp_path / "broker"), "--json"]) == 0
    assert sorted(one["queue"] for one in json.loads(capsys.readouterr().out)["queues"]) == sorted(names)


@given(st.lists(st.text(max_size=80), unique=True, max_size=20))
def test_file_names_fit_differ_and_stay_in_their_folder(names):
    spelled = [file_name(name) for name in names if _is_text(name) and len(name.encode()) <= 255]
    assert len(set(spelled)) == len(spelled)
    for one in spelled:
        assert len(one) <= FILE_NAME_BYTES
        assert not one.startswith(".")
        assert "/" not in one


@pytest.mark.parametrize("name", ["celery", "antenna-ingest", "antenna.dlq", "a b", "worker@host.celery.pidbox"])
def test_ordinary_names_keep_their_folders(name):
    assert file_name(name) == quote(name, safe="") == Path(file_name(name)).name


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
