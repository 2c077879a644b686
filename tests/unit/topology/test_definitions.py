"""RabbitMQ's definitions: what is declared over AMQP and nothing else, a hash, refusals in one sentence."""

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
from ami.topology import broker, credentials, definitions
from ami.topology.errors import TopologyError
from ami.topology.topology import Topology, load
from ami.topology.workload import CONSUMER_TIMEOUT_SECONDS
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
    """An empty broker: what ``queues declare`` declares there is kept, and no queue exists before."""

    def __enter__(self) -> "Declared":
        return self

    def __exit__(self, *_) -> None:
        pass

    def queue_declare(self, queue: str, passive: bool = False, **arguments) -> None:
        if passive:
            raise NotFound
        super().queue_declare(queue, **arguments)

    def queue_unbind(self, *_, **__) -> None:
        """Nothing was bound."""


def test_a_broker_that_loaded_them_holds_what_queues_declare_would_declare(monkeypatch):
    monkeypatch.setattr(declaration, "kind_of", lambda _: KINDS["amqp"])
    declaration.declare(ALL, found := Declared(ACCOUNT.vhost))
    held = rendered()
    assert held["queues"] == list(found.queues.values())
    assert held["exchanges"] == list(found.exchanges.values())
    assert held["bindings"] == found.bindings


def test_queues_dead_letters_and_the_alternate_exchange_are_those_of_the_table():
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


def test_delay_queues_halve_their_time_and_end_at_the_queue_s_own_key():
    held = rendered()
    arguments = queue_arguments(held)
    assert [arguments[f"celery_delayed_{level}"]["x-message-ttl"] for level in (27, 1, 0)] == [2**27 * 1000, 2000, 1000]
    assert arguments["celery_delayed_0"]["x-dead-letter-exchange"] == broker.DELAYED_DELIVERY_EXCHANGE
    assert {arguments[f"celery_delayed_{level}"]["x-queue-type"] for level in range(28)} == {"quorum"}
    for queue in ALL.queues:
        assert keys(held, queue) == {("antenna", queue), ("antenna", f"#.{queue}")}
        assert (broker.DELAYED_DELIVERY_EXCHANGE, f"#.{queue}") in keys(held, broker.EXCHANGE_NAME, "exchange")


def test_the_slow_queue_is_there_when_it_is_switched_on():
    assert "antenna-slow" in queue_arguments(rendered(ALL))
    assert "antenna-slow" not in queue_arguments(rendered(load({})))


def test_with_single_routing_a_restart_gives_no_key_back_that_a_rollback_took_away():
    held = rendered(SINGLE)
    assert keys(held, "antenna") == {("antenna", "antenna"), ("antenna", "#.antenna")}
    assert not any(binding["destination"] == "antenna-ingest" for binding in held["bindings"])
    assert "antenna-ingest" not in queue_arguments(held)
    assert "antenna-ingest.dlq" in queue_arguments(held)


def test_policies_are_those_of_the_oldest_rabbitmq_unless_a_newer_one_is_named():
    def policies(**options) -> dict[str, dict]:
        return {policy["name"]: policy for policy in rendered(**options)["policies"]}

    assert policies()["antenna-ingest"]["definition"] == {"delivery-limit": 20}
    newer = policies(version=definitions.parse("3.13.7"))["antenna-ingest"]["definition"]
    assert newer == {"delivery-limit": 20, "consumer-timeout": CONSUMER_TIMEOUT_SECONDS * 1000}
    assert {policy["vhost"] for policy in policies().values()} == {"insects"}


@pytest.mark.parametrize("version", ["3.9", "3", "", "three", "3.x", "3.10-rc.1", "²3.1"])
def test_a_version_that_is_none_or_too_old_is_refused(version: str):
    with pytest.raises(TopologyError, match="write it like 3.13"):
        definitions.parse(version)


def test_the_hash_is_the_one_of_rabbitmq_s_documentation():
    salt = bytes.fromhex("908DC60A")
    known = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    assert definitions.Account("x", "test12", "x").password_hash(salt) == known


def test_the_hash_verifies_with_the_salt_it_begins_with():
    user = rendered()["users"][0]
    raw = base64.b64decode(user["password_hash"])
    assert raw[4:] == hashlib.sha256(raw[:4] + SECRET.encode()).digest()
    assert user["hashing_algorithm"] == "rabbit_password_hashing_sha256"
    assert user["tags"] == "administrator"


def test_the_same_every_time_but_for_the_salt():
    assert rendered(salt=b"salt") == rendered(salt=b"salt")
    first, second = rendered(), rendered()
    assert first["users"][0].pop("password_hash") != second["users"][0].pop("password_hash")
    assert first == second


def test_the_password_shows_in_no_representation():
    assert SECRET not in repr(ACCOUNT)
    assert SECRET not in json.dumps(rendered())


def test_incident_4_the_broker_s_consumer_timeout_is_the_one_that_hard_limits_stay_below():
    found = re.search(r"^consumer_timeout = (\d+)$", conf("antenna.conf"), re.MULTILINE)
    assert found
    assert int(found[1]) == CONSUMER_TIMEOUT_SECONDS * 1000


def test_the_broker_loads_what_compose_has_written():
    assert re.search(r"^load_definitions = /definitions/antenna\.json$", conf("antenna.conf"), re.MULTILINE)


def conf(name: str) -> str:
    return (ROOT / "compose" / "rabbitmq" / name).read_text()


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return forked_python.run(["-m", "ami.topology", "definitions", *arguments], env={**inherited, **environment})


@pytest.mark.processes
def test_the_command_prints_them_and_no_password():
    done = run(**GOOD)
    assert done.returncode == 0, done.stderr
    held = json.loads(done.stdout)
    assert held["vhosts"] == [{"name": "insects"}]
    assert [permission["user"] for permission in held["permissions"]] == ["antenna"]
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.processes
def test_the_command_writes_a_file_that_another_user_can_read_and_leaves_nothing_beside_it(tmp_path: Path):
    file = tmp_path / "antenna.json"
    file.write_text("the old one")
    done = run("--write", str(file), **GOOD)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads(file.read_text())["users"][0]["name"] == "antenna"
    assert file.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [file]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path):
    (tmp_path / "antenna.json").mkdir()
    with pytest.raises(TopologyError, match="cannot be written"):
        credentials.write(tmp_path / "antenna.json", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["antenna.json"]


REFUSED = {
    "no user": ({"RABBITMQ_USER": ""}, "RABBITMQ_USER is not set"),
    "no password": ({"RABBITMQ_PASSWORD": ""}, "RABBITMQ_PASSWORD is not set"),
    "no virtual host": ({"RABBITMQ_VHOST": ""}, "RABBITMQ_VHOST is not set"),
    "placeholder": ({"RABBITMQ_PASSWORD": f"change-me-{SECRET}"}, "RABBITMQ_PASSWORD still holds the placeholder"),
    "given twice": ({"RABBITMQ_PASSWORD_FILE": "/x"}, "RABBITMQ_PASSWORD and RABBITMQ_PASSWORD_FILE are both set"),
    "no file": ({"RABBITMQ_PASSWORD": "", "RABBITMQ_PASSWORD_FILE": "/nowhere/x"}, "RABBITMQ_PASSWORD_FILE cannot be"),
    "two lines": ({"RABBITMQ_PASSWORD": f"{SECRET}\nmore"}, "RABBITMQ_PASSWORD holds more than one line"),
}


@pytest.mark.processes
@pytest.mark.parametrize(("changes", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_missing_or_wrong_account_is_one_sentence_and_exit_2(changes: dict[str, str], sentence: str):
    done = run(**{**GOOD, **changes})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"ami.topology: {sentence}")
    assert done.stderr.count("\n") == 1
    assert SECRET not in done.stderr


def test_the_account_may_come_from_files(tmp_path: Path):
    environ = {}
    for name, value in GOOD.items():
        (tmp_path / name).write_text(f"{value}\n")
        environ[f"{name}_FILE"] = str(tmp_path / name)
    assert credentials.account(environ) == ACCOUNT


def test_an_empty_file_is_refused_by_its_name(tmp_path: Path):
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(TopologyError, match="RABBITMQ_PASSWORD_FILE names an empty file"):
        credentials.account({**GOOD, "RABBITMQ_PASSWORD": "", "RABBITMQ_PASSWORD_FILE": str(tmp_path / "empty")})
