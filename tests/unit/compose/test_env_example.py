"""`.env.example` documents every variable that settings and compose files read, in one line each."""

import re

import pytest
import yaml

from ami.governor import settings as governor
from ami.topology import containers
from ami.topology.table import ROWS
from ami.topology.topology import load, override_name
from ami.topology.workload import BOUNDS
from config.settings import environment
from tests.support import forked_python
from tests.support.place import ROOT

LINES = (ROOT / ".env.example").read_text().splitlines()
ASSIGNMENT = re.compile(r"^#?([A-Z][A-Z0-9_]*)=(.*)$")
READ_BY_SETTINGS = re.compile(
    r'\b(?:env\.\w+|required|required_url|whole_number|on_or_off|one_of|endpoints|refuse_placeholder)\(\s*"([A-Z][A-Z0-9_]*)"'
)
READ_BY_CODE = re.compile(r'os\.environ(?:\.get\(|\[)"((?:ANTENNA|NATS|FLOWER)_[A-Z0-9_]*)"')
READ_BY_COMPOSE = re.compile(r"\$\{([A-Z][A-Z0-9_]*)")
SECRETS = ("PASSWORD", "SECRET", "_URL", "BASIC_AUTH")
PUBLIC = {"FLOWER_URL", "ANTENNA_PUBLIC_URL", "ANTENNA_SERVICES_URL", "ANTENNA_S3_ENDPOINT_URL"}
OVERRIDES = {override_name(row, field) for row in ROWS for field in (*BOUNDS, "pool")}
GOVERNOR_OVERRIDES = {override_name(row, name) for row in ROWS for name in governor.NAMES}
FILES = {f"{name}_FILE" for name in environment.SECRETS}


def documented() -> dict[str, str]:
    return {match[1]: match[2] for line in LINES if (match := ASSIGNMENT.match(line))}


def read_by_settings() -> set[str]:
    text = "\n".join(path.read_text() for path in (ROOT / "config/settings").glob("*.py"))
    looped = re.findall(r'"([A-Z][A-Z0-9_]+)"', "".join(re.findall(r"for _name in \((.*?)\)", text)))
    return {*READ_BY_SETTINGS.findall(text), *looped}


def read_by_compose() -> set[str]:
    """Variables in ``${}``, variables passed on without a value, and Compose's own."""
    found = {"COMPOSE_FILE", "COMPOSE_PROFILES", *containers.OPTIONAL}
    for path in ROOT.glob("docker-compose*.yml"):
        found |= set(READ_BY_COMPOSE.findall(path.read_text()))
        for service in yaml.load(path.read_text(), yaml.CSafeLoader)["services"].values():
            found |= {name for name, value in (service.get("environment") or {}).items() if value is None}
    return found


def read_by_code() -> set[str]:
    # FLOWER_UNAUTHENTICATED_API is read only to refuse it.
    found = {name for part in ("ami", "config") for path in (ROOT / part).rglob("*.py") for name in names_in(path)}
    for path in (ROOT / "config/waiting").glob("*.py"):
        found |= set(READ_BY_SETTINGS.findall(path.read_text()))
    return found - {"FLOWER_UNAUTHENTICATED_API"} | {"ANTENNA_JOURNAL_DIR"}


def names_in(path) -> list[str]:
    return READ_BY_CODE.findall(path.read_text())


def test_every_variable_is_documented_and_nothing_else():
    read = read_by_settings() | read_by_compose() | read_by_code() | set(governor.NAMES)
    assert {"NATS_TASK_TTR", "DJANGO_DEBUG", "AWS_SECRET_ACCESS_KEY", "RABBITMQ_PASSWORD"} <= read
    patterns = OVERRIDES | GOVERNOR_OVERRIDES | FILES
    assert set(documented()) - patterns == read - patterns


def words(label: str) -> list[str]:
    return " ".join(line.removeprefix(f"# {label}: ") for line in LINES if line.startswith(f"# {label}: ")).split()


def test_pattern_documents_every_topology_override():
    assert {f"ANTENNA_{row}_{field}" for row in words("WORKLOAD") for field in words("FIELD")} == OVERRIDES


def test_pattern_documents_every_secret_that_may_be_a_file():
    assert words("NAME") == list(environment.SECRETS)
    (example,) = FILES & set(documented())
    (line,) = [line for line in LINES if "<NAME>_FILE" in line]
    assert LINES.index(line) < LINES.index(f"#{example}={documented()[example]}")


def test_every_required_secret_may_be_a_file():
    secrets = {name for name in documented() if name.endswith(SECRETS)} & read_by_settings()
    assert secrets - PUBLIC <= set(environment.SECRETS)


def test_governor_variables_show_their_defaults():
    documented_here = {name: value for name, value in documented().items() if name in governor.NAMES}
    assert list(documented_here) == list(governor.NAMES), "in the order of ami/governor/settings.py"
    assert governor.load(environ=documented_here) == governor.GovernorSettings()


def test_governor_pattern_for_one_queue_is_what_a_worker_reads():
    names = {f"ANTENNA_{row}_{name}" for row in words("WORKLOAD") for name in governor.NAMES}
    assert names == GOVERNOR_OVERRIDES
    governor.refuse_unknown(ROWS, dict.fromkeys(names, "1"))
    (example,) = GOVERNOR_OVERRIDES & set(documented())
    (line,) = [line for line in LINES if "ANTENNA_<WORKLOAD>_<NAME>" in line]
    assert LINES.index(line) < LINES.index(f"#{example}={documented()[example]}")
    changed = [row for row in ROWS if governor.load(row, documented()) != governor.load(row, {})]
    assert [row.key for row in changed] == ["INGEST"]


def test_each_variable_occurs_once_with_one_line_of_comment():
    names = [match[1] for line in LINES if (match := ASSIGNMENT.match(line))]
    assert sorted(names) == sorted(set(names))
    for above, line in zip(LINES, LINES[1:], strict=False):
        if ASSIGNMENT.match(line):
            assert re.match(r"# \S.*[.:]?$", above), line


def test_every_secret_has_the_placeholder():
    required = {name: value for name, value in documented().items() if name.endswith(SECRETS)}
    assert {name for name, value in required.items() if "change-me" not in value} == PUBLIC


def test_containers_pass_on_what_settings_read():
    deployment = [ROOT / "config/settings" / name for name in ("base.py", "production.py")]
    read = {name for path in deployment for name in READ_BY_SETTINGS.findall(path.read_text())}
    by_image = {"ANTENNA_MEDIA_ROOT", "ANTENNA_RESULTS_ROOT"}
    passed_on = {*containers.REQUIRED, *containers.DEFAULTS, *containers.OPTIONAL}
    # The bucket's keys are boto's, the limit is config.waiting's, routing and rows that are off are the topology's.
    elsewhere = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "DJANGO_SETTINGS_MODULE", "ANTENNA_WAIT_SECONDS"}
    topology = {"ANTENNA_ROUTING", *(row.enabled_by for row in ROWS if row.enabled_by)}
    assert passed_on == (read - by_image) | elsewhere | topology
    assert tuple(governor.NAMES) == containers.GOVERNOR


@pytest.mark.processes
def test_copied_example_does_not_start_production():
    environment = {name: value for name, value in documented().items() if f"#{name}={value}" not in LINES}
    use = "from django.conf import settings; settings.DEBUG"
    done = forked_python.run(["-c", use], env={**environment, "DJANGO_SETTINGS_MODULE": "config.settings.production"})
    assert done.returncode == 1
    assert "still holds the placeholder 'change-me'" in done.stderr


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_pattern_is_what_the_topology_reads(row):
    topology = load({f"ANTENNA_{row.key}_MAX_TASKS_PER_CHILD": "7", "ANTENNA_SLOW_ENABLED": "1"})
    assert topology.workload(row.queue).max_tasks_per_child == 7
