"""`.env.services.example` documents every variable that the services beside our processes read, in one line each."""

import re

from ami.topology import credentials
from provision import dotenv, env_files
from tests.support.place import ROOT

TEXT = env_files.SERVICES_EXAMPLE.read_text()
LINES = TEXT.splitlines()

#: What the images of PostgreSQL and of the cluster's nodes read, and Redis's start script.
BY_IMAGES = {"POSTGRES_USER", "POSTGRES_PASSWORD", "POSTGRES_PASSWORD_FILE", "POSTGRES_DB"}
SCRIPTS = ("redis/with-password", "rabbitmq/with-cookie")


def test_every_variable_is_documented_and_nothing_else():
    by_us = {f"{name}{end}" for name in (*credentials.RABBITMQ, *credentials.NATS) for end in ("", "_FILE")}
    texts = [(ROOT / "compose" / script).read_text() for script in SCRIPTS]
    by_scripts = {name for text in texts for name in re.findall(r"\$\{?([A-Z]+_[A-Z_]+)\b", text)}
    assert len(by_scripts) == 4
    assert set(dotenv.names(TEXT)) == by_us | by_scripts | BY_IMAGES


def test_each_variable_occurs_once_with_one_line_of_comment():
    names = dotenv.names(TEXT)
    assert sorted(names) == sorted(set(names))
    for above, line in zip(LINES, LINES[1:], strict=False):
        if dotenv.names(line):
            assert re.fullmatch(r"# \S.*\.", above), line


def test_every_secret_has_the_placeholder():
    assignments = [line.lstrip("#").partition("=") for line in LINES if dotenv.names(line)]
    secret = {name: value for name, _, value in assignments if name.endswith(("PASSWORD", "COOKIE"))}
    assert set(secret.values()) == {dotenv.PLACEHOLDER}
    assert len(secret) == 5
