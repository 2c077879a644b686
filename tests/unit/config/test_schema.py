"""The schema of variables: one declaration each, from which every other file is rendered."""

import re

import pytest
import yaml

from ami.environment.declaration import variables
from ami.governor import settings as governor
from ami.topology.table import ROWS
from ami.topology.topology import load
from config.rendered.__main__ import FILES, main
from config.schema.environment import CONCERNS, Environment, known, of_row, secrets
from config.schema.services import Services
from tests.support import forked_python
from tests.support.place import ROOT

DECLARED = {each.name: each for concern in (*CONCERNS, Services) for each in variables(concern)}
COMPOSE_FILES = (*sorted(ROOT.glob("docker-compose*.yml")), ROOT / "compose/demo.yml")
ASSIGNMENT = re.compile(r"^#?([A-Z][A-Z0-9_]*)=(.*)$", re.MULTILINE)


def example(name: str) -> dict[str, str]:
    return dict(ASSIGNMENT.findall((ROOT / name).read_text()))


def test_rendered_files_are_what_the_schema_renders(capsys):
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_rendered_files_document_every_variable_once():
    texts = (FILES[name]() for name in (".env.example", ".env.services.example"))
    documented = [name for text in texts for name, _ in ASSIGNMENT.findall(text)]
    assert sorted(documented) == sorted(set(documented))
    assert set(DECLARED) <= set(documented)
    page = FILES["docs/settings.md"]().partition("## Variables of the Antenna before")[0]
    assert [name for name in DECLARED if page.count(f"| `{name}` |") != 1] == []


def test_every_variable_has_a_line_and_numbers_have_bounds():
    for name, variable in DECLARED.items():
        assert re.fullmatch(r"\S.*[.]", variable.line), f"{name}: one sentence or more"
        assert (variable.kind in (int, float)) == (variable.low is not None) == (variable.high is not None), name
        assert not variable.secret or not variable.default, f"{name}: a secret has no default"


def test_every_needed_url_and_key_is_a_secret():
    needed = {each.name for each in variables(Environment) if each.needed_by}
    assert needed - {"DJANGO_ALLOWED_HOSTS"} <= {each.name for each in secrets()}


def test_example_shows_the_governor_s_defaults():
    shown = {name: value for name, value in example(".env.example").items() if name in governor.NAMES}
    assert tuple(shown) == governor.NAMES
    assert governor.load(environ=shown) == governor.GovernorSettings()


def test_variables_of_a_queue_are_those_that_its_worker_reads():
    for row in ROWS:
        names = {each.name for each in of_row(row)}
        assert names <= known()
        assert f"ANTENNA_{row.key}_MEMORY_GOVERNOR" in names
    topology = load({"ANTENNA_INGEST_MAX_TASKS_PER_CHILD": "7"})
    assert topology.workload(ROWS[0].queue).max_tasks_per_child == 7


def test_compose_files_read_declared_variables_with_their_defaults():
    names = known()
    for path in COMPOSE_FILES:
        text = path.read_text()
        for name, rest in re.findall(r"(?<!\$)\$\{([A-Z][A-Z0-9_]*)([^}]*)\}", text):
            assert name in names, f"{path.name}: {name}"
            if name in DECLARED:
                assert rest == f":-{DECLARED[name].default_text}", f"{path.name}: {name}"
        for service in yaml.load(text, yaml.CSafeLoader)["services"].values():
            passed_on = {name for name, value in (service.get("environment") or {}).items() if value is None}
            assert passed_on <= names


@pytest.mark.processes
def test_copied_example_does_not_start_production():
    lines = (ROOT / ".env.example").read_text().splitlines()
    written = {name: value for name, value in example(".env.example").items() if f"{name}={value}" in lines}
    use = "from django.conf import settings; settings.DEBUG"
    done = forked_python.run(["-c", use], env={**written, "DJANGO_SETTINGS_MODULE": "config.settings.production"})
    assert done.returncode == 1
    refused = [line.split()[2] for line in done.stderr.splitlines()]
    assert refused == [name for name, value in written.items() if "change-me" in value], "all at once"


#: Where variables are read, passed on or given a default; tools and tests set values as any user of them does.
SCANNED = ("ami", "config", "compose")
SUFFIXES = ("", ".py", ".yml", ".conf")
ELSEWHERE = ("compose/demo.yml", "config/schema/earlier.py")


def test_no_variable_is_written_by_hand_in_a_second_place():
    """Prose may name one; a literal, an interpolation, an assignment or a key is a second place beside its field."""
    paths = (path for folder in SCANNED for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    files = {str(path.relative_to(ROOT)): path for path in paths if path.is_file()}
    django = "DJANGO_SETTINGS_MODULE"  # Django finds its settings by this name, wherever a process begins.
    by_image = {("compose/Dockerfile", each.name) for each in DECLARED.values() if each.by_image}
    files_of_secrets = [each.file for each in DECLARED.values() if each.secret]
    names = "|".join(sorted({*DECLARED, *files_of_secrets}, key=len, reverse=True))
    writing = re.compile(rf"""["']({names})["']|\$\{{?({names})\b|^\s*(?:ENV )?({names})[=:]""", re.MULTILINE)
    found = {
        (name, next(filter(None, match.groups())))
        for name, path in files.items()
        if name not in ELSEWHERE
        for match in writing.finditer(path.read_text())
    }
    # The image sets what differs in every container; in the images of others only a shell reads a variable.
    scripts = ("compose/postgres/database-user", "compose/rabbitmq/with-cookie", "compose/redis/with-password")
    shell = {pair for pair in found if pair[0] in scripts}
    assert {name for name, _ in shell} == set(scripts)
    assert {pair for pair in found - shell if pair[1] != django} == {pair for pair in by_image if pair[1] != django}
