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


def test_services_write_to_their_volumes_only():
    assert {name for name, service in ALL.items() if service["read_only"] is not True} == set(WRITABLE)
    assert not [volume for service in ALL.values() for volume in service.get("volumes", ()) if "docker.sock" in volume]


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


@pytest.mark.parametrize("name", ALL)
def test_no_service_has_a_secret_among_its_own_variables(name: str):
    """Secrets come from the env files, where a file may hold them instead."""
    environment = ALL[name].get("environment") or {}
    assert [key for key, value in environment.items() if SECRET.search(key) and value is not None] == []


def test_nats_reads_its_login_from_a_file_that_it_alone_mounts():
    service = ALL["nats"]
    assert "environment" not in service
    assert "env_file" not in service
    assert {name for name, one in ALL.items() if "nats_login" in str(one.get("volumes"))} == {"definitions", "nats"}
    assert "nats_login:/etc/nats/login:ro" in service["volumes"]
    assert "\ninclude ./login/login.conf\n" in (ROOT / "compose/nats/antenna.conf").read_text()
    # The file is readable for the group of our image's user.
    assert f"USER {service['group_add'][0]}:{service['group_add'][0]}\n" in (ROOT / "compose/Dockerfile").read_text()
