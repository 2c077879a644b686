"""Variables that nothing reads: misspelt ones stop a process, foreign ones pass, former ones are reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ami.environment.names import distance
from config.schema import earlier
from config.schema.environment import known, unknown

from .conftest import GOOD, Run

REFUSED = {
    "ANTENNA_INGEST_CONCURENCY": "ANTENNA_INGEST_CONCURRENCY",
    "ANTENNA_SLOW_ENABLE": "ANTENNA_SLOW_ENABLED",
    "ANTENNA_PROXY": "ANTENNA_PROXIES",
    "ANTENNA_INGEST_MEMORY_THROTLE_THRESHOLD": "ANTENNA_INGEST_MEMORY_THROTTLE_THRESHOLD",
    "MEMORY_THROTLE_THRESHOLD": "MEMORY_THROTTLE_THRESHOLD",
    "MEMORY_RESUME": "MEMORY_RESUME_THRESHOLD",
    "GPU_THROTTLE_TRESHOLD": "GPU_THROTTLE_THRESHOLD",
    "GOVERNOR_MODE": "MEMORY_GOVERNOR",
    "GOVERNOR_STATE_DIRS": "GOVERNOR_STATE_DIR",
    "GOVERNOR_STATE": "GOVERNOR_STATE_DIR",
    "CELERY_BROKER": "CELERY_BROKER_URL",
    "CELERY_BROKER_URI": "CELERY_BROKER_URL",
    "CELERY_RESULT": "CELERY_RESULT_BACKEND",
    "DJANGO_ALLOWED_HOST": "DJANGO_ALLOWED_HOSTS",
    "RABBITMQ_MANAGMENT_URL": "RABBITMQ_MANAGEMENT_URL",
    "FLOWER_BASIC_AUT": "FLOWER_BASIC_AUTH",
    "antenna_slow_enabled": "ANTENNA_SLOW_ENABLED",
    "ANTENNA_HOME": "",
}

#: Of Celery, of Kubernetes for a Service of its namespace, of other programs, and ours without a value.
PASSING = {
    "CELERY_LOG_LEVEL": "info",
    "CELERY_LOADER": "default",
    "CELERY_CONFIG_MODULE": "x",
    "ANTENNA_WEB_SERVICE_HOST": "10.0.0.1",
    "ANTENNA_WEB_SERVICE_PORT": "8000",
    "ANTENNA_WEB_SERVICE_PORT_HTTP": "8000",
    "ANTENNA_WEB_PORT": "tcp://10.0.0.1:8000",
    "ANTENNA_WEB_PORT_8000_TCP_ADDR": "10.0.0.1",
    "NATS_PORT": "tcp://10.0.0.1:4222",
    "MEMORY_LIMIT": "3",
    "WORKER_COUNT": "3",
    "CELERY_WORKER": "x",
    "DJANGO_LOG": "x",
    "ANTENNA_INGEST_CONCURENCY": "",
}


@pytest.mark.parametrize(("name", "meant"), REFUSED.items(), ids=REFUSED)
def test_misspelt_name_is_refused_with_the_nearest(name: str, meant: str):
    (sentence,) = unknown({name: "1"})
    meant = f" Did you mean '{meant}'?" if meant else ""
    assert sentence.startswith(f"{name} is not a variable that anything reads.{meant}")
    assert ("Did you mean" in sentence) == bool(meant)


@pytest.mark.parametrize("name", ["FLOWER_URL_FILE", "DJANGO_ALLOWED_HOSTS_FILE", "ANTENNA_TOKEN_FILE"])
def test_file_of_what_is_not_read_from_one_is_refused(name: str):
    (sentence,) = unknown({name: "/run/secrets/x"})
    assert sentence.endswith(f" {name.removesuffix('_FILE')} is not read from a file; set it itself.")


#: Perhaps another program's.
SUSPECTED = {
    "DATABSE_URL": "DATABASE_URL",
    "REDIS_ULR": "REDIS_URL",
    "NATS_URLS": "NATS_URL",
    "NATS_TASK_TTL": "NATS_TASK_TTR",
    "WEB_CONCURENCY": "WEB_CONCURRENCY",
}


@pytest.mark.processes
def test_name_that_may_be_another_program_s_is_reported(run: Run):
    done = run("manage.py", "check", **dict.fromkeys(SUSPECTED, "secret-key"))
    assert done.returncode == 0
    for name, meant in SUSPECTED.items():
        assert f"Configuration: {name} is not a variable that Antenna reads. Did you mean '{meant}'?\n" in done.stderr
    assert "secret-key" not in done.stderr


def test_foreign_names_pass():
    assert list(unknown(PASSING)) == []


def test_known_names_pass():
    assert list(unknown(dict.fromkeys({*known(), *earlier.SUCCESSORS}, "1"))) == []


@pytest.mark.parametrize("module", ["local", "test", "production"])
@pytest.mark.processes
def test_every_settings_module_refuses_a_misspelt_name_before_anything_starts(run: Run, module: str):
    settings = {"DJANGO_SETTINGS_MODULE": f"config.settings.{module}"}
    done = run("manage.py", "check", **settings, ANTENNA_INGEST_CONCURENCY="3", MEMORY_THROTLE_THRESHOLD="70")
    assert (done.returncode, done.stdout) == (1, "")
    wrong = [line.split()[2] for line in done.stderr.splitlines()]
    assert wrong == ["ANTENNA_INGEST_CONCURENCY", "MEMORY_THROTLE_THRESHOLD"]


@pytest.mark.processes
def test_variable_of_an_earlier_version_is_reported_with_its_successor(run: Run):
    former = {"CELERY_WORKER_CONCURRENCY": "4", "CELERY_FLOWER_USER": "x", "DJANGO_AWS_ACCESS_KEY_ID": "secret-key"}
    done = run("manage.py", "check", **former, POSTGRES_PASSWORD="secret-key")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert [line.split()[1] for line in lines] == sorted([*former, "POSTGRES_PASSWORD"])
    assert "each queue has its own, such as ANTENNA_INGEST_CONCURRENCY" in done.stderr
    assert "secret-key" not in done.stderr


def test_every_successor_exists():
    words = (word.rstrip(",") for text in earlier.SUCCESSORS.values() for word in text.split())
    named = {word for word in words if word.isupper() and "_" in word}
    assert named <= known()
    assert set(earlier.MISTAKEN.values()) <= known()
    assert not set(earlier.SUCCESSORS) & set(GOOD)


@pytest.mark.parametrize(
    ("one", "other", "letters"),
    [("a", "a", 0), ("abc", "abd", 1), ("abc", "ab", 1), ("abc", "xab", 2), ("abc", "xyz", 3)],
)
def test_distance_counts_letters(one: str, other: str, letters: int):
    assert distance(one, other) == distance(other, one) == letters


@given(st.text("ABC_", max_size=9), st.text("ABC_", max_size=9))
def test_distance_is_counted_as_far_as_it_matters(one: str, other: str):
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, row = row, [i]
        for j, own in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != own)))
    assert distance(one, other) == min(row[-1], 3)
