"""docker-compose.cluster.yml and its nodes' files: three nodes that differ in name and volume only."""

import re
import subprocess

import pytest
import yaml

from tests.support.place import ROOT

TEXT = (ROOT / "docker-compose.cluster.yml").read_text()
CLUSTER = yaml.load(TEXT, yaml.CSafeLoader)
SERVICES = CLUSTER["services"]
BASE = yaml.load((ROOT / "docker-compose.yml").read_text(), yaml.CSafeLoader)
FOLDER = ROOT / "compose" / "rabbitmq"
NODES = ("rabbitmq", "rabbitmq_2", "rabbitmq_3")


def test_nodes_discover_each_other_by_container_name():
    found = re.findall(r"^cluster_formation\.classic_config\.nodes\.\d+ = rabbit@(\S+)$", conf(), re.MULTILINE)
    assert found == list(NODES)
    (named,) = re.findall(r'^nodes="(.+)"$', (FOLDER / "members").read_text(), re.MULTILINE)
    assert named.split() == [f"rabbit@{node}" for node in NODES]
    for node in NODES:
        service = {**(BASE["services"]["rabbitmq"] if node == "rabbitmq" else {}), **SERVICES[node]}
        assert service["hostname"] == node, "the node's name, and with it its folder in the volume"


def test_queues_are_loaded_when_all_nodes_run_and_a_minority_pauses():
    """A quorum queue declared by a lone first node has that node as its only member."""
    assert "\ncluster_formation.target_cluster_size_hint = 3\n" in conf()
    assert "\ncluster_partition_handling = pause_minority\n" in conf()


def conf() -> str:
    return (FOLDER / "cluster.conf").read_text()


@pytest.mark.parametrize("node", NODES)
def test_every_node_has_its_volume_and_the_same_files(node: str):
    assert {volume.removesuffix(":ro").rsplit(":", 1)[1] for volume in all_of(node)} == {
        "/var/lib/rabbitmq",
        "/definitions",
        "/antenna/with-cookie",
        "/etc/rabbitmq/conf.d/20-antenna.conf",
        "/etc/rabbitmq/conf.d/30-cluster.conf",
        "/etc/rabbitmq/enabled_plugins",
        "/run/secrets",
    }
    assert f"{node}:/var/lib/rabbitmq" in all_of(node)
    assert node in {**BASE["volumes"], **CLUSTER["volumes"]}


def all_of(node: str) -> list[str]:
    base = BASE["services"]["rabbitmq"]["volumes"] if node == "rabbitmq" else []
    return [*base, *SERVICES[node]["volumes"]]


def test_every_node_and_tool_reads_the_cookie_from_the_services_env_file():
    for name in (*NODES, "members"):
        (file,) = SERVICES[name]["env_file"]
        assert file == {"path": "${ANTENNA_SERVICES_ENV_FILE:-.env.services}", "required": False}
        assert SERVICES[name]["entrypoint"] == ["sh", "/antenna/with-cookie"]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("value", "sentence"), [("", "ERLANG_COOKIE is not set; "), ("change-me", "ERLANG_COOKIE is still ")]
)
def test_node_without_a_cookie_of_its_own_does_not_start(value: str, sentence: str):
    done = subprocess.run(
        ["/bin/sh", FOLDER / "with-cookie", "true"],
        env={"ERLANG_COOKIE": value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(sentence)
    assert done.stderr.count("\n") == 1


def test_no_ports_are_published_and_no_service_waits_for_a_node():
    """Nodes that were stopped together wait for each other; started one by one they would wait for ever."""
    for node in NODES:
        assert "ports" not in SERVICES[node]
        assert not set(SERVICES[node].get("depends_on", ())) & set(NODES)
    assert {wait["condition"] for wait in SERVICES["members"]["depends_on"].values()} == {"service_started"}


def test_setup_waits_until_the_queues_have_their_members():
    assert SERVICES["setup"]["depends_on"] == {"members": {"condition": "service_completed_successfully"}}
    assert "setup" in BASE["services"]["web"]["depends_on"]
