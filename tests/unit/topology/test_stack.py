"""The stack file: only what a swarm honours, secrets by name, and the table's numbers."""

import copy
import json
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from ami.topology import containers, processes, stack
from ami.topology.processes import Choices
from ami.topology.topology import load
from tests.support import forked_python

SCHEMA = json.loads(Path(__file__).with_name("stack.schema.json").read_text())
jsonschema.validators.validator_for(SCHEMA).check_schema(SCHEMA)
VALIDATOR = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
SLOW = {"ANTENNA_SLOW_ENABLED": "1"}
ALL = load(SLOW)
CHOICES = Choices(image="example.org/antenna:1.0", host="insects.example.org")
#: Compose's own, which a swarm ignores without a word or refuses.
NOT_HONOURED = (
    "build",
    "container_name",
    "depends_on",
    "scale",
    "mem_limit",
    "cpu_shares",
    "cpus",
    "restart",
    "profiles",
)
each_row = pytest.mark.parametrize("row", ALL.workloads, ids=lambda row: row.queue)


def validate(found):
    """As ``jsonschema.validate``, which checks the schema itself each time as well."""
    if error := jsonschema.exceptions.best_match(VALIDATOR.iter_errors(found)):
        raise error


def rendered(environ=SLOW, choices=CHOICES):
    return yaml.load(stack.render(load(environ), environ, choices), yaml.CSafeLoader)


FILE = rendered()
SERVICES = FILE["services"]


@pytest.mark.parametrize("choices", [CHOICES, Choices(files="nfs", secrets=("AWS_SECRET_ACCESS_KEY",))])
@pytest.mark.parametrize("environ", [{}, SLOW, {"ANTENNA_INGEST_CPUS": "2"}], ids=["default", "slow", "cpus"])
def test_it_has_only_fields_that_a_swarm_honours(environ, choices):
    validate(rendered(environ, choices))


@pytest.mark.parametrize("field", NOT_HONOURED)
def test_a_field_that_a_swarm_does_not_honour_is_refused(field):
    """The check above can fail."""
    wrong = copy.deepcopy(FILE)
    wrong["services"]["web"][field] = {}
    with pytest.raises(jsonschema.ValidationError, match=field):
        validate(wrong)


def docker_reads(text):
    """What Docker makes of the file; asked of its client alone, which needs no engine and no swarm."""
    command = ["docker", "stack", "config", "--compose-file", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)


def has_stack_config():
    asked = ["docker", "stack", "config", "--help"]
    return bool(shutil.which("docker")) and subprocess.run(asked, capture_output=True, check=False).returncode == 0


with_docker = pytest.mark.skipif(not has_stack_config(), reason="NO `docker stack config` HERE: Docker was not asked")


@pytest.mark.processes
@with_docker
def test_docker_s_own_schema_takes_it_and_reads_the_same_numbers():
    text = stack.render(ALL, {**SLOW, "ANTENNA_S3_BUCKET": "a$b"}, Choices(files="nfs"))
    read = docker_reads(text)
    assert (read.returncode, read.stderr) == (0, "")
    services = yaml.load(read.stdout, yaml.CSafeLoader)["services"]
    for row in ALL.workloads:
        service = services[row.service]
        assert int(service["deploy"]["resources"]["limits"]["memory"]) == row.memory_limit_kib * 1024
        assert service["deploy"]["replicas"] == row.replicas
        assert service["command"][-1] == row.queue
    assert services["web"]["environment"]["ANTENNA_S3_BUCKET"] in ("a$b", "a$$b"), "no variable of Docker's"
    assert set(services) == set(SERVICES)


@pytest.mark.processes
@with_docker
@pytest.mark.parametrize(
    ("field", "sentence"), [("mem_limit", "forbidden properties"), ("replica", "Additional property replica")]
)
def test_docker_s_own_schema_refuses_what_is_wrong(field, sentence):
    wrong = copy.deepcopy(FILE)
    wrong["services"]["web"][field] = "1"
    assert sentence in docker_reads(yaml.safe_dump(wrong)).stderr


@each_row
def test_a_worker_is_what_its_row_says(row):
    service = SERVICES[row.service]
    assert service["command"] == ["python", "-m", "config.waiting", "python", "-m", "ami.topology", "worker", row.queue]
    assert service["stop_grace_period"] == f"{row.stop_grace_period_seconds}s"
    resources = service["deploy"]["resources"]
    assert resources["limits"] == {"memory": f"{row.memory_limit_kib}k"}, "cores are not limited"
    assert resources["reservations"] == {"memory": f"{row.memory_limit_kib}k", "cpus": "1"}
    assert service["deploy"]["replicas"] == row.replicas
    assert service["deploy"]["update_config"]["order"] == "start-first"
    assert service["healthcheck"]["test"] == ["CMD", "fresh", "/tmp/worker-pulse", "60"]
    assert service["environment"]["ANTENNA_PULSE_FILE"] == "/tmp/worker-pulse"


def test_there_is_one_beat_and_the_old_one_stops_first():
    beat = SERVICES["celerybeat"]
    assert beat["deploy"]["replicas"] == 1
    assert beat["deploy"]["update_config"]["order"] == "stop-first"
    assert beat["healthcheck"]["test"] == ["CMD", "fresh", "/tmp/beat-tick", "60"]


def test_a_queue_that_is_off_has_no_worker():
    assert "celeryworker_slow" in SERVICES
    assert "celeryworker_slow" not in rendered({})["services"]


def test_setup_ends_and_is_not_started_again():
    assert SERVICES["setup"]["deploy"]["restart_policy"]["condition"] == "on-failure"


@pytest.mark.parametrize("name", SERVICES)
def test_every_process_runs_one_image_with_nothing_it_does_not_need(name):
    service = SERVICES[name]
    assert service["image"] == CHOICES.image
    assert (service["user"], service["read_only"], service["cap_drop"]) == ("10001:10001", True, ["ALL"])
    assert service["networks"] == ["antenna"]
    assert "ports" not in service, "a swarm publishes on every address of every node"


@pytest.mark.parametrize("name", SERVICES)
def test_every_required_secret_is_a_file_that_the_service_is_given(name):
    service = SERVICES[name]
    for variable in (name for name in containers.REQUIRED if processes.is_secret(name)):
        assert service["environment"][f"{variable}_FILE"] == f"/run/secrets/{variable.lower()}"
        assert variable not in service["environment"]
        assert variable.lower() in service["secrets"]
        assert FILE["secrets"][variable.lower()] == {"external": True, "name": f"antenna_{variable.lower()}"}
    assert set(service["secrets"]) <= set(FILE["secrets"])


def test_only_flower_is_given_its_login():
    assert [name for name, service in SERVICES.items() if "flower_basic_auth" in service["secrets"]] == ["flower"]


def test_a_secret_that_not_everybody_has_is_asked_for_by_name():
    assert "aws_secret_access_key" not in FILE["secrets"]
    file = rendered({}, Choices(secrets=("AWS_SECRET_ACCESS_KEY",)))
    assert file["secrets"]["aws_secret_access_key"]["name"] == "antenna_aws_secret_access_key"
    assert all("aws_secret_access_key" in service["secrets"] for service in file["services"].values())


def test_no_secret_is_rendered_even_when_the_environment_has_it():
    names = (*containers.REQUIRED, *containers.OPTIONAL, *containers.AS_FILES)
    environ = {name: f"canary-{name}" for name in names if processes.is_secret(name)}
    assert "canary" not in stack.render(load({}), {**environ, "FLOWER_BASIC_AUTH": "user:canary"}, CHOICES)


@pytest.mark.parametrize(("name", "value"), [("REPLICAS", "3"), ("CONCURRENCY", "4"), ("CPUS", "0.5")])
def test_an_override_changes_the_file(name, value):
    environ = {f"ANTENNA_INGEST_{name}": value}
    row = load(environ).workload("antenna-ingest")
    service = rendered(environ)["services"]["celeryworker_ingest"]
    assert service["environment"][f"ANTENNA_INGEST_{name}"] == value
    assert service["deploy"]["replicas"] == row.replicas
    assert service["deploy"]["resources"]["limits"]["memory"] == f"{row.memory_limit_kib}k"
    assert service["deploy"]["resources"]["limits"].get("cpus") == (value if name == "CPUS" else None)


def test_what_docker_would_take_for_a_variable_stays_what_it_is():
    text = rendered({"ANTENNA_S3_BUCKET": "a$b"})["services"]["web"]["environment"]["ANTENNA_S3_BUCKET"]
    assert text == "a$$b"


def test_files_that_would_be_lost_with_the_task_cannot_be_written():
    files = {volume["target"]: volume for volume in SERVICES["web"]["volumes"]}
    assert files["/data"] == {"type": "tmpfs", "target": "/data", "read_only": True}
    shared = rendered({}, Choices(files="nfs"))
    assert shared["volumes"] == {"files": {"external": True, "name": "nfs"}}
    assert {"type": "volume", "source": "files", "target": "/data"} in shared["services"]["web"]["volumes"]


@pytest.mark.processes
def test_what_is_written_passes_its_check_and_a_change_does_not(tmp_path):
    def run(*arguments):
        return forked_python.run(["-m", "ami.topology", "stack", *arguments], env={"PATH": "/usr/bin:/bin"})

    file = str(tmp_path / "stack.yml")
    assert run("--write", file).returncode == 0
    assert run("--check", file).returncode == 0
    assert run("--check", file, "--image", "example.org/antenna:2.0").returncode == 1
    assert yaml.load(run().stdout, yaml.CSafeLoader) == rendered({}, Choices())
