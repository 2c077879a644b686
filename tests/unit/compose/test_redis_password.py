"""compose/redis/with-password: Redis never starts without a password, and any password is quoted in its file."""

import subprocess
from pathlib import Path

import pytest

from tests.support.place import ROOT

SCRIPT = ROOT / "compose/redis/with-password"

pytestmark = pytest.mark.processes


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script with a stand-in for the image's entrypoint, which prints what Redis would read."""
    entrypoint = folder / "docker-entrypoint.sh"
    entrypoint.write_text('#!/bin/sh\necho "$@"\ncat "$2"\n')
    entrypoint.chmod(0o755)
    # The configuration's place is the container's own memory.
    script = SCRIPT.read_text().replace("/tmp/redis.conf", str(folder / "redis.conf"))  # noqa: S108
    argv = ["/bin/sh", "-c", script, "with-password", "--maxmemory", "1mb"]
    environment["PATH"] = f"{folder}:/usr/bin:/bin"
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({}, "REDIS_PASSWORD is not set; "),
        ({"REDIS_PASSWORD": ""}, "REDIS_PASSWORD is not set; "),
        ({"REDIS_PASSWORD": "change-me"}, "REDIS_PASSWORD is still the placeholder; "),
    ],
)
def test_redis_without_a_password_does_not_start(tmp_path: Path, environment: dict[str, str], sentence: str):
    done = run(tmp_path, **environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(sentence)
    assert done.stderr.count("\n") == 1


def test_missing_file_of_the_password_does_not_start_redis(tmp_path: Path):
    done = run(tmp_path, REDIS_PASSWORD_FILE=str(tmp_path / "nowhere"))
    assert (done.returncode != 0, done.stdout) == (True, "")


@pytest.mark.parametrize("as_file", [False, True], ids=["variable", "file"])
def test_password_is_quoted_in_the_configuration_alone(tmp_path: Path, as_file: bool):
    password = 'a"b\\c # $d'
    (tmp_path / "password").write_text(password + "\n")
    given = {"REDIS_PASSWORD_FILE": str(tmp_path / "password")} if as_file else {"REDIS_PASSWORD": password}
    command, conf = run(tmp_path, **given).stdout.splitlines()
    assert command == f"redis-server {tmp_path}/redis.conf --save  --maxmemory-policy allkeys-lru --maxmemory 1mb"
    assert conf == r'requirepass "a\"b\\c # $d"'
