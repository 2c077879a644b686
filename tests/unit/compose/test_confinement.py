"""Every service of every compose file: no unneeded capability, and no secret on a command line."""

import re
from typing import Any

import pytest
import yaml

from tests.support.place import ROOT

FILES = (*sorted(ROOT.glob("docker-compose*.yml")), ROOT / "compose/demo.yml")

#: The capabilities to change a volume's owner and to switch to another user.
STEPS_DOWN = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}
BEGIN_AS_ROOT = {"rabbitmq", "rabbitmq_2", "rabbitmq_3", "members", "redis", "postgres"}

#: The folder of its socket belongs to its own user; a tmpfs there would belong to root.
WRITABLE = {"postgres"}

SECRET = re.compile(r"PASSWORD|SECRET|COOKIE|BASIC_AUTH|ACCESS_KEY|(BROKER|REDIS|DATABASE|NATS|MANAGEMENT)_URL")


def services() -> dict[str, dict[str, Any]]:
    """Every service, later files merged over earlier ones."""
    found: dict[str, dict[str, Any]] = {}
    for file in FILES:
        for name, service in yaml.load(file.read_text(), yaml.CSafeLoader)["services"].items():
            found[name] = {**found.get(name, {}), **service}
    return found


ALL = services()


def test_every_compose_file_is_checked():
    assert len(FILES) == 4
    assert {"web", "celeryworker_ingest", "rabbitmq_3", "demo", "prometheus", "definitions"} <= set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_service_has_no_unneeded_capability(name: str):
    service = ALL[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert set(service.get("cap_add", ())) == (STEPS_DOWN if name in BEGIN_AS_ROOT else set())
    assert not {"privileged", "network_mode", "pid", "ipc", "devices", "userns_mode"} & set(service)


@pytest.mark.parametrize("name", ALL)
def test_service_writes_to_its_volumes_only(name: str):
    assert ALL[name]["read_only"] is (name not in WRITABLE)
    assert not [volume for volume in ALL[name].get("volumes", ()) if "docker.sock" in volume]


@pytest.mark.parametrize("name", ALL)
def test_no_command_line_has_a_secret(name: str):
    """Compose substitutes ``${}``, which any list of processes then shows; ``$${}`` is left to the shell."""
    words = [
        ALL[name].get("command") or [],
        ALL[name].get("entrypoint") or [],
        *ALL[name].get("healthcheck", {}).values(),
    ]
    text = " ".join(str(word) for each in words for word in (each if isinstance(each, list) else [each]))
    assert [found for found in re.findall(r"(?<!\$)\$\{([A-Z0-9_]+)", text) if SECRET.search(found)] == []


def test_nats_reads_its_login_from_the_environment_as_text():
    service = ALL["nats"]
    assert service["command"] == ["--config", "/etc/nats/antenna.conf"]
    assert "./compose/nats/antenna.conf:/etc/nats/antenna.conf:ro" in service["volumes"]
    conf = (ROOT / "compose/nats/antenna.conf").read_text()
    assert "user: $NATS_USER, password: $NATS_PASSWORD" in conf
    for name in ("NATS_USER", "NATS_PASSWORD"):
        # Unquoted, a password of digits is a number, and one with a # is cut off there.
        assert re.fullmatch(rf"'\$\{{{name}\?[^}}]+\}}'", service["environment"][name])
