"""The order of the steps, and their errors, which never contain a password."""

from __future__ import annotations

import dataclasses

import pytest

from provision import services, steps
from provision.kind import Kind, NothingFound, Request, Unavailable
from provision.service import Service

SECRET = "hunter2"


def refuse(words: str) -> steps.Step:
    def take(kind: Kind, request: Request) -> Service:
        raise Unavailable(words)

    def look(kind: Kind, request: Request) -> str:
        raise Unavailable(words)

    return steps.Step(words.replace(" ", "-"), look, take)


def give(name: str) -> steps.Step:
    return steps.Step(name, lambda *_: name, lambda kind, _: Service(kind.name, "x://h:1", None, name, "v"))


def test_steps_are_in_order() -> None:
    assert [step.name for step in steps.steps({})] == ["url", "binary", "wheel", "apt", "compose"]


def test_skipping_steps_forces_a_later_one() -> None:
    left = steps.steps({"ANTENNA_PROVISION_SKIP": "url, binary,apt"})
    assert [step.name for step in left] == ["wheel", "compose"]


def test_unknown_step_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"binray.*url, binary, wheel, apt, compose"):
        steps.steps({"ANTENNA_PROVISION_SKIP": "binray"})


def test_first_working_step_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEPS", (refuse("no luck"), give("second"), give("third")))
    assert services.obtain(services.KINDS["redis"], Request({})).how == "second"


def test_nothing_found_has_every_reason_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEPS", (refuse("no luck"), refuse("no docker")))
    with pytest.raises(NothingFound) as raised:
        services.obtain(services.KINDS["redis"], Request({}))
    for words in ("redis: no luck; no docker.", "redis-server", "apt-get install", "REDIS_URL"):
        assert words in str(raised.value)


def test_password_of_the_url_is_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEPS", (steps.STEPS[0],))
    for kind in services.KINDS.values():
        scheme = kind.default_url.partition(":")[0]
        environ = {kind.variable: f"{scheme}://user:{SECRET}@127.0.0.1:1/0"}
        with pytest.raises(NothingFound, match=r"127\.0\.0\.1:1 \(connection refused\)") as raised:
            services.obtain(kind, Request(environ))
        assert SECRET not in str(raised.value)
        assert SECRET not in str(services.standing(kind, Request(environ)))


def test_private_never_probes_the_url() -> None:
    def probe(url: str, seconds: float) -> str:
        raise AssertionError("probed")

    kind = dataclasses.replace(services.KINDS["redis"], probe=probe)
    with pytest.raises(Unavailable, match="a private one is required"):
        steps.look_at_url(kind, Request({}, private=True))


def test_unknown_service_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"kafka.*rabbitmq, redis, postgres, nats"):
        services.kinds_of(["kafka"])


def test_unknown_management_url_is_unset() -> None:
    found = {"rabbitmq": Service("rabbitmq", "amqp://h//", None, "at its URL", "RabbitMQ")}
    assert services.environment(found) == {"CELERY_BROKER_URL": "amqp://h//", "RABBITMQ_MANAGEMENT_URL": None}


def test_failure_cancels_services_that_are_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled: list[str] = []

    def take(kind: Kind, request: Request) -> Service:
        if kind.name == "redis":
            raise Unavailable("broken")
        assert request.cancelled.wait(10)
        cancelled.append(kind.name)
        raise Unavailable("cancelled")

    monkeypatch.setattr(steps, "STEPS", (steps.Step("only", lambda *_: "", take),))
    with pytest.raises(NothingFound, match="redis: broken"), services.running(["nats", "redis"], environ={}):
        pass
    assert cancelled == ["nats"]
