"""RabbitMQ's definitions: equal to what is declared over AMQP, with a password hash; errors are one sentence."""

import base64
import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from amqp.exceptions import NotFound
from kombu.transport import native_delayed_delivery as delayed

from ami.celery import declaration
from ami.celery.broker_kind import KINDS
from ami.topology import broker, definitions, nats_login
from ami.topology.accounts import RabbitMQAccount, accounts
from ami.topology.errors import TopologyError
from ami.topology.topology import Topology, load
from ami.topology.workload import CONSUMER_TIMEOUT_SECONDS
from ami.topology.written_file import write
from tests.support import forked_python
from tests.support.place import ROOT

SECRET = "pass-word-5d1f"
GOOD = {"RABBITMQ_USER": "antenna", "RABBITMQ_PASSWORD": SECRET, "RABBITMQ_VHOST": "insects"}
ACCOUNT = definitions.Account("antenna", SECRET, "insects")
ALL = load({"ANTENNA_SLOW_ENABLED": "1"})
SINGLE = load({"ANTENNA_ROUTING": "single"})


def rendered(topology: Topology = ALL, **options) -> dict:
    return definitions.render(topology, ACCOUNT, **options)


def queue_arguments(held: dict) -> dict[str, dict]:
    return {queue["name"]: queue["arguments"] for queue in held["queues"]}


def keys(held: dict, destination: str, kind: str = "queue") -> set[tuple[str, str]]:
    return {
        (binding["source"], binding["routing_key"])
        for binding in held["bindings"]
        if (binding["destination"], binding["destination_type"]) == (destination, kind)
    }


class Declared(definitions.Record):
    """An empty broker that records what ``queues declare`` declares."""

    def __enter__(self) -> "Declared":
        return self

    def __exit__(self, *_) -> None:
        pass

    def queue_declare(self, queue: str, passive: bool = False, **arguments) -> None:
        if passive:
            raise NotFound
        super().queue_declare(queue, **arguments)

    def queue_unbind(self, *_, **__) -> None:
        """No queue was bound."""


def test_definitions_equal_what_queues_declare_declares(monkeypatch):
    monkeypatch.setattr(declaration, "kind_of", lambda _: KINDS["amqp"])
    declaration.declare(ALL, found := Declared(ACCOUNT.vhost))
    held = rendered()
    assert held["queues"] == list(found.queues.values())
    assert held["exchanges"] == list(found.exchanges.values())
    assert held["bindings"] == found.bindings


def test_queues_and_exchanges_follow_the_table():
    held = rendered()
    arguments = queue_arguments(held)
    expected = (*broker.task_queues(ALL), *broker.dead_letter_queues(ALL), broker.unrouted_queue())
    for queue in expected:
        assert arguments[queue.name] == queue.queue_arguments
        assert (queue.exchange.name, queue.routing_key) in keys(held, queue.name)
    levels = {delayed.level_name(level) for level in range(delayed.MAX_NUMBER_OF_BITS_TO_USE)}
    assert set(arguments) == {queue.name for queue in expected} | levels
    exchanges = {exchange["name"]: exchange for exchange in held["exchanges"]}
    assert exchanges["antenna"]["type"] == "topic"
    assert exchanges["antenna"]["arguments"] == {"alternate-exchange": broker.UNROUTED}


def test_delay_queues_halve_their_ttl_and_end_at_the_queue_key():
    held = rendered()
    arguments = queue_arguments(held)
    assert [arguments[f"celery_delayed_{level}"]["x-message-ttl"] for level in (27, 1, 0)] == [2**27 * 1000, 2000, 1000]
    assert arguments["celery_delayed_0"]["x-dead-letter-exchange"] == broker.DELAYED_DELIVERY_EXCHANGE
    assert {arguments[f"celery_delayed_{level}"]["x-queue-type"] for level in range(28)} == {"quorum"}
    for queue in ALL.queues:
        assert keys(held, queue) == {("antenna", queue), ("antenna", f"#.{queue}")}
        assert (broker.DELAYED_DELIVERY_EXCHANGE, f"#.{queue}") in keys(held, broker.EXCHANGE_NAME, "exchange")


def test_slow_queue_is_rendered_only_if_enabled():
    assert "antenna-slow" in queue_arguments(rendered(ALL))
    assert "antenna-slow" not in queue_arguments(rendered(load({})))


def test_single_routing_does_not_restore_bindings_of_split_queues():
    held = rendered(SINGLE)
    assert keys(held, "antenna") == {("antenna", "antenna"), ("antenna", "#.antenna")}
    assert not any(binding["destination"] == "antenna-ingest" for binding in held["bindings"])
    assert "antenna-ingest" not in queue_arguments(held)
    assert "antenna-ingest.dlq" in queue_arguments(held)


def test_policies_fit_the_oldest_rabbitmq_unless_a_newer_is_named():
    def policies(**options) -> dict[str, dict]:
        return {policy["name"]: policy for policy in rendered(**options)["policies"]}

    assert policies()["antenna-ingest"]["definition"] == {"delivery-limit": 20}
    newer = policies(version=definitions.parse("3.13.7"))["antenna-ingest"]["definition"]
    assert newer == {"delivery-limit": 20, "consumer-timeout": CONSUMER_TIMEOUT_SECONDS * 1000}
    assert {policy["vhost"] for policy in policies().values()} == {"insects"}


@pytest.mark.parametrize("version", ["3.9", "3", "", "three", "3.x", "3.10-rc.1", "²3.1"])
def test_invalid_or_old_rabbitmq_version_is_refused(version: str):
    with pytest.raises(TopologyError, match="write it like 3.13"):
        definitions.parse(version)


def test_password_hash_equals_rabbitmq_documentation():
    salt = bytes.fromhex("908DC60A")
    known = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    assert definitions.Account("x", "test12", "x").password_hash(salt) == known


def test_password_hash_verifies_with_its_salt():
    user = rendered()["users"][0]
    raw = base64.b64decode(user["password_hash"])
    assert raw[4:] == hashlib.sha256(raw[:4] + SECRET.encode()).digest()
    assert user["hashing_algorithm"] == "rabbit_password_hashing_sha256"
    assert user["tags"] == "administrator"


def test_definitions_are_deterministic_except_for_the_salt():
    assert rendered(salt=b"salt") == rendered(salt=b"salt")
    first, second = rendered(), rendered()
    assert first["users"][0].pop("password_hash") != second["users"][0].pop("password_hash")
    assert first == second


def test_password_is_not_in_repr_or_output():
    assert SECRET not in repr(ACCOUNT)
    assert SECRET not in json.dumps(rendered())


def test_incident_4_broker_has_the_consumer_timeout_of_the_table():
    found = re.search(r"^consumer_timeout = (\d+)$", conf("antenna.conf"), re.MULTILINE)
    assert found
    assert int(found[1]) == CONSUMER_TIMEOUT_SECONDS * 1000


def test_broker_loads_the_definitions_file_of_compose():
    assert re.search(r"^load_definitions = /definitions/antenna\.json$", conf("antenna.conf"), re.MULTILINE)


def conf(name: str) -> str:
    return (ROOT / "compose" / "rabbitmq" / name).read_text()


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return forked_python.run(["-m", "ami.topology", "definitions", *arguments], env={**inherited, **environment})


@pytest.mark.processes
def test_command_prints_definitions_without_password():
    done = run(**GOOD)
    assert done.returncode == 0, done.stderr
    held = json.loads(done.stdout)
    assert held["vhosts"] == [{"name": "insects"}]
    assert [permission["user"] for permission in held["permissions"]] == ["antenna"]
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.processes
def test_command_writes_a_world_readable_file_atomically(tmp_path: Path):
    file = tmp_path / "antenna.json"
    file.write_text("the old one")
    done = run("--write", str(file), **GOOD)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads(file.read_text())["users"][0]["name"] == "antenna"
    assert file.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [file]


def test_failed_write_leaves_the_old_file(tmp_path: Path):
    (tmp_path / "antenna.json").mkdir()
    with pytest.raises(TopologyError, match="cannot be written"):
        write(tmp_path / "antenna.json", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["antenna.json"]


REFUSED = {
    "no user": ({"RABBITMQ_USER": ""}, "RABBITMQ_USER is not set"),
    "no password": ({"RABBITMQ_PASSWORD": ""}, "RABBITMQ_PASSWORD is not set"),
    "no virtual host": ({"RABBITMQ_VHOST": ""}, "RABBITMQ_VHOST is not set"),
    "placeholder": ({"RABBITMQ_PASSWORD": f"change-me-{SECRET}"}, "RABBITMQ_PASSWORD still holds the placeholder"),
    "given twice": ({"RABBITMQ_PASSWORD_FILE": "/x"}, "RABBITMQ_PASSWORD and RABBITMQ_PASSWORD_FILE are both set"),
    "no file": (
        {"RABBITMQ_PASSWORD": "", "RABBITMQ_PASSWORD_FILE": "/nowhere/x"},
        "RABBITMQ_PASSWORD_FILE is '/nowhere/x', which is not a file",
    ),
    "two lines": ({"RABBITMQ_PASSWORD": f"{SECRET}\nmore"}, "RABBITMQ_PASSWORD holds more than one line"),
}


@pytest.mark.processes
@pytest.mark.parametrize(("changes", "sentence"), REFUSED.values(), ids=REFUSED)
def test_missing_or_invalid_account_exits_2_with_one_sentence(changes: dict[str, str], sentence: str):
    done = run(**{**GOOD, **changes})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"ami.topology: {sentence}")
    assert done.stderr.count("\n") == 1
    assert SECRET not in done.stderr


@pytest.mark.processes
def test_all_missing_values_are_named_in_one_sentence(tmp_path: Path):
    done = run("--nats-login", str(tmp_path / "login.conf"), RABBITMQ_USER="antenna", NATS_USER="antenna")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "ami.topology: RABBITMQ_PASSWORD, RABBITMQ_VHOST, NATS_PASSWORD are not set; set them in "
    )
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
def test_login_of_nats_is_readable_by_its_group_alone(tmp_path: Path):
    file = tmp_path / "login.conf"
    done = run("--nats-login", str(file), **GOOD, NATS_USER="antenna", NATS_PASSWORD=SECRET)
    assert (done.returncode, SECRET in done.stdout + done.stderr) == (0, False)
    assert file.read_text() == f'authorization: {{ user: "antenna", password: "{SECRET}" }}\n'
    assert file.stat().st_mode & 0o777 == 0o640


LOGINS = {"0123": '"0123"', "a#b": '"a#b"', 'q"uote': r'"q\"uote"', "back\\slash": r'"back\\slash"', "$X": '"$X"'}


@pytest.mark.parametrize(("password", "written"), LOGINS.items(), ids=LOGINS)
def test_password_of_nats_is_text_whatever_it_contains(password: str, written: str):
    assert nats_login.render("antenna", password) == f'authorization: {{ user: "antenna", password: {written} }}\n'


def test_account_may_come_from_files(tmp_path: Path):
    environ = {}
    for name, value in GOOD.items():
        (tmp_path / name).write_text(f"{value}\n")
        environ[f"{name}_FILE"] = str(tmp_path / name)
    assert definitions.Account(*accounts(environ, RabbitMQAccount)) == ACCOUNT


def test_empty_account_file_is_refused(tmp_path: Path):
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(TopologyError, match="RABBITMQ_PASSWORD_FILE is '.*/empty', which holds no text"):
        accounts({**GOOD, "RABBITMQ_PASSWORD": "", "RABBITMQ_PASSWORD_FILE": str(tmp_path / "empty")}, RabbitMQAccount)
