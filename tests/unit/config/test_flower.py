"""Flower outside local settings: no login, no Flower."""

import pytest

from .conftest import Run

pytestmark = pytest.mark.processes

FLOWER = ("-m", "celery", "-A", "config", "flower", "--port=0", "--address=127.0.0.1")
OPEN = {
    "no login": ({}, "FLOWER_BASIC_AUTH is not set"),
    "an empty login": ({"FLOWER_BASIC_AUTH": ""}, "FLOWER_BASIC_AUTH is not USER:PASSWORD"),
    "no password": ({"FLOWER_BASIC_AUTH": "operator:"}, "FLOWER_BASIC_AUTH is not USER:PASSWORD"),
    "a second login without password": ({"FLOWER_BASIC_AUTH": "a:sesame,b"}, "FLOWER_BASIC_AUTH is not USER:PASSWORD"),
    "the placeholder": ({"FLOWER_BASIC_AUTH": "operator:change-me"}, "FLOWER_BASIC_AUTH still holds the placeholder"),
    "an open API": (
        {"FLOWER_BASIC_AUTH": "operator:sesame", "FLOWER_UNAUTHENTICATED_API": "true"},
        "FLOWER_UNAUTHENTICATED_API opens Flower's API",
    ),
}


@pytest.mark.parametrize(("environment", "sentence"), OPEN.values(), ids=OPEN)
def test_open_flower_is_refused_before_it_listens(run: Run, environment: dict[str, str], sentence: str):
    done = run(*FLOWER, **environment)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Configuration refused: {sentence}")
    assert done.stderr.count("\n") == 1
    assert "sesame" not in done.stderr


def test_a_configuration_file_cannot_open_it_again(run: Run, tmp_path):
    conf = tmp_path / "flowerconfig.py"
    conf.write_text("basic_auth = []\n")
    done = run(*FLOWER, f"--conf={conf}", FLOWER_BASIC_AUTH="operator:sesame")
    assert done.returncode == 1
    assert done.stderr.startswith("Configuration refused: FLOWER_BASIC_AUTH is not set")
