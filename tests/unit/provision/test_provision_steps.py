"""The order of the steps, what is said when one fails, and what is never said."""

from __future__ import annotations

import dataclasses

import pytest

from provision import services, steps
from provision.kind import Asked, Kind, NothingFound, Unavailable
from provision.service import Service

SECRET = "hunter2"


def refuse(words: str) -> steps.Step:
    def no(kind: Kind, asked: Asked) -> Service:
        raise Unavailable(words)

    def look(kind: Kind, asked: Asked) -> str:
        raise Unavailable(words)

    return steps.Step(words.replace(" ", "-"), look, no)


def give(name: str) -> steps.Step:
    return steps.Step(name, lambda *_: name, lambda kind, _: Service(kind.name, "x://h:1", None, name, "v"))


def test_steps_come_in_the_promised_order() -> None:
    assert [step.name for step in steps.steps({})] == ["url", "binary", "wheel", "apt", "compose"]


def test_skipping_steps_forces_a_later_one() -> None:
    left = steps.steps({"ANTENNA_PROVISION_SKIP": "url, binary,apt"})
    assert [step.name for step in left] == ["wheel", "compose"]


def test_an_unknown_step_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"binray.*url, binary, wheel, apt, compose"):
        steps.steps({"ANTENNA_PROVISION_SKIP": "binray"})


def test_the_first_step_that_works_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEPS", (refuse("no luck"), give("second"), give("third")))
    assert services.obtain(services.KINDS["redis"], Asked({})).how == "second"


def test_nothing_found_names_every_reason_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEPS", (refuse("no luck"), refuse("no docker")))
    with pytest.raises(NothingFound) as raised:
        services.obtain(services.KINDS["redis"], Asked({}))
    for words in ("redis: no luck; no docker.", "redis-server", "apt-get install", "REDIS_URL"):
        assert words in str(raised.value)


def test_a_password_in_the_url_is_in_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEPS", (steps.STEPS[0],))
    for kind in services.KINDS.values():
        scheme = kind.default_url.partition(":")[0]
        environ = {kind.variable: f"{scheme}://someone:{SECRET}@127.0.0.1:1/0"}
        with pytest.raises(NothingFound, match=r"127\.0\.0\.1:1 \(connection refused\)") as raised:
            services.obtain(kind, Asked(environ))
        assert SECRET not in str(raised.value)
        assert SECRET not in str(services.standing(kind, Asked(environ)))


def test_private_never_asks_the_url() -> None:
    def probe(url: str, seconds: float) -> str:
        raise AssertionError("asked")

    kind = dataclasses.replace(services.KINDS["redis"], probe=probe)
    with pytest.raises(Unavailable, match="a private one is required"):
        steps.look_at_url(kind, Asked({}, private=True))


def test_an_unknown_service_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"kafka.*rabbitmq, redis, postgres, nats"):
        services.kinds_of(["kafka"])


def test_the_environment_unsets_a_management_url_that_is_not_known() -> None:
    found = {"rabbitmq": Service("rabbitmq", "amqp://h//", None, "at its URL", "RabbitMQ")}
    assert services.environment(found) == {"CELERY_BROKER_URL": "amqp://h//", "RABBITMQ_MANAGEMENT_URL": None}


def test_a_failure_calls_off_what_is_still_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    called_off: list[str] = []

    def take(kind: Kind, asked: Asked) -> Service:
        if kind.name == "redis":
            raise Unavailable("broken")
        assert asked.cancelled.wait(10)
        called_off.append(kind.name)
        raise Unavailable("called off")

    monkeypatch.setattr(steps, "STEPS", (steps.Step("only", lambda *_: "", take),))
    with pytest.raises(NothingFound, match="redis: broken"), services.running(["nats", "redis"], environ={}):
        pass
    assert called_off == ["nats"]
