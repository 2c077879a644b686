"""Production with wrong settings: the process stops with one sentence that names the setting and the remedy."""

import pytest

from .conftest import GOOD, SECRETS, Run

pytestmark = pytest.mark.processes

WRONG = {
    "no broker": ("CELERY_BROKER_URL", "", "set it to something like amqp://"),
    "broker without a password": ("CELERY_BROKER_URL", "amqp://rabbitmq:5672/antenna", "carries no password"),
    "broker of another kind": ("CELERY_BROKER_URL", "memory://", "begins with none of amqp://, amqps://, objectstore+"),
    "broker in one process": ("CELERY_BROKER_URL", "objectstore+memory://", "is the memory of one process"),
    "broker over no store": ("CELERY_BROKER_URL", "objectstore+s4://bucket", "'s4' is not an object storage"),
    "broker with a store's secret": (
        "CELERY_BROKER_URL",
        "objectstore+s3://key:wrong-secret@bucket/antenna",
        "credentials belong into the environment",
    ),
    "broker without a host": ("CELERY_BROKER_URL", "amqp://antenna:wrong-secret@/antenna", "names no host"),
    "no secret key": ("DJANGO_SECRET_KEY", "", "secrets.token_urlsafe(50)"),
    "short secret key": ("DJANGO_SECRET_KEY", "wrong-secret", "secrets.token_urlsafe(50)"),
    "monotonous secret key": ("DJANGO_SECRET_KEY", "a" * 60, "secrets.token_urlsafe(50)"),
    "secret key left as it was": ("DJANGO_SECRET_KEY", "change-me" * 8, "placeholder"),
    "no database": ("DATABASE_URL", "", "set it to something like postgres://"),
    "database in a file": ("DATABASE_URL", "sqlite:////tmp/x.sqlite3", "begins with none of postgres://"),
    "database password left as it was": (
        "DATABASE_URL",
        "postgres://antenna:change-me@postgres/antenna",
        "placeholder",
    ),
    "database password not encoded": (
        "DATABASE_URL",
        "postgres://antenna:wrong-secret#1@postgres/x",
        "percent-encoded",
    ),
    "no Redis": ("REDIS_URL", "", "set it to something like redis://"),
    "Redis without a password": ("REDIS_URL", "redis://redis:6379/0", "carries no password"),
    "no NATS (incident 10)": ("NATS_URL", "", "set it to something like nats://"),
    "no hosts": ("DJANGO_ALLOWED_HOSTS", "", "set it to something like antenna.example.org"),
    "override of 0": ("ANTENNA_INGEST_CONCURRENCY", "0", "must be a whole number from 1 to 512"),
    "override of no row": ("ANTENNA_INGST_CONCURRENCY", "4", "Did you mean 'ANTENNA_INGEST_CONCURRENCY'?"),
    "misspelt routing": (
        "ANTENNA_ROUTING",
        "splitt",
        "one of split, single (default split). Did you mean 'split'?",
    ),
    "seconds that are no number": ("NATS_TASK_TTR", "five", "must be a whole number from 1"),
    "no proxy that speaks https": ("ANTENNA_PROXIES", "", "usually 1"),
    "misspelt switch": ("DJANGO_SECURE_SSL_REDIRECT", "flase", "use 1 or 0"),
    "misspelt log format": ("ANTENNA_LOG_FORMAT", "jason", "use one of text, json"),
    "misspelt log level": ("ANTENNA_LOG_LEVEL", "INFOO", "Did you mean 'INFO'?"),
    "largest picture out of bounds": ("ANTENNA_MAX_MEGAPIXELS", "179", "must be a whole number from 1 to 178"),
    "allowed endpoint with a port": ("ANTENNA_ALLOWED_ENDPOINTS", "minio,127.0.0.1:9000", "the entry '127.0.0.1:9000'"),
    "allowed endpoint as a URL": ("ANTENNA_ALLOWED_ENDPOINTS", "http://minio", "without scheme and port"),
    "allowed network that is none": ("ANTENNA_ALLOWED_ENDPOINTS", "10.0.0.0/33", "nor a network"),
    "threshold that is no number": ("MEMORY_THROTTLE_THRESHOLD", "90%", "must be a number"),
    "threshold out of bounds": ("SWAP_THROTTLE_THRESHOLD", "700", "must be a number from 1 to 100"),
    "resume above throttle": ("MEMORY_RESUME_THRESHOLD", "95", "must be below MEMORY_THROTTLE_THRESHOLD (90)"),
    "misspelt switch of the governor": ("MEMORY_INTERRUPT_BUSY", "ture", "use 1 or 0"),
    "unknown mode of the governor": ("MEMORY_GOVERNOR", "dryrun", "use one of off, dry-run, on"),
    "governor of no queue": (
        "ANTENNA_INGST_MEMORY_GOVERNOR",
        "off",
        "Did you mean 'ANTENNA_INGEST_MEMORY_GOVERNOR'?",
    ),
    "interval of one queue": ("ANTENNA_INGEST_MEMORY_CHECK_INTERVAL", "often", "must be a number"),
    "processes of web that are no number": ("WEB_CONCURRENCY", "abc", "must be a whole number from 1 to 1000"),
    "a number over two lines": ("NATS_TASK_TTR", "30\nDJANGO", "must be a whole number"),
    "a long number": ("NATS_TASK_TTR", "9" * 5000, "999...'; it must be"),
    "log level in small letters": ("ANTENNA_LOG_LEVEL", "info", "Did you mean 'INFO'?"),
    "tasks in no module": ("ANTENNA_EXTRA_TASKS", "nosuch.tasks", "'nosuch.tasks', which is not a module here"),
    "tasks separated by semicolons": ("ANTENNA_EXTRA_TASKS", "demo.tasks;x", "write it like demo.tasks,other.tasks"),
    "public address without a scheme": ("ANTENNA_PUBLIC_URL", "antenna.example.org", "begins with none of http://"),
    "Flower's address as a script": ("FLOWER_URL", "javascript:alert(1)", "begins with none of http://, https://"),
    "object storage without a host": ("ANTENNA_S3_ENDPOINT_URL", "https://", "names no host"),
    "origin without a scheme": ("DJANGO_CSRF_TRUSTED_ORIGINS", "https://a.org,b.org", "begins with none of http://"),
    "Redis with a port that is none": ("REDIS_URL", "redis://:wrong-secret@redis:x/0", "is not a URL"),
    "results of an unknown kind": ("CELERY_RESULT_BACKEND", "foo://u:wrong-secret@h", "no kind that Celery knows"),
    "management of another kind": ("RABBITMQ_MANAGEMENT_URL", "amqp://a:wrong-secret@h", "begins with none of http://"),
    "batches longer than a job's slice": (
        "ANTENNA_PROCESS_SECONDS",
        "150",
        "(150) must be below 150: antenna-housekeeping runs jobs with a soft time limit of 240 s",
    ),
    "management password left as it was": (
        "RABBITMQ_MANAGEMENT_URL",
        "http://a:change-me@rabbitmq:15672",
        "placeholder",
    ),
}


def test_a_new_interpreter_stops_like_the_forked_one(run: Run, run_anew: Run):
    refused = [start("manage.py", "check", NATS_URL="") for start in (run_anew, run)]
    assert refused[0].returncode == refused[1].returncode == 1
    assert refused[0].stdout == refused[1].stdout == ""
    assert refused[0].stderr == refused[1].stderr
    assert refused[0].stderr.startswith("Configuration refused: NATS_URL is not set")


@pytest.mark.parametrize(("name", "value", "remedy"), WRONG.values(), ids=WRONG)
def test_wrong_setting_stops_the_process_and_no_secret_is_repeated(run: Run, name: str, value: str, remedy: str):
    done = run("manage.py", "check", **{name: value})
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"Configuration refused: {name} ")
    assert done.stderr.count("\n") == 1
    assert remedy in done.stderr
    assert [secret for secret in (*SECRETS.values(), "wrong-secret") if secret in done.stderr] == []


def test_contradiction_of_one_queue_names_that_queue(run: Run):
    done = run("manage.py", "check", ANTENNA_SLOW_ENABLED="1", ANTENNA_SLOW_GPU_RESUME_THRESHOLD="85")
    assert done.returncode == 1
    assert done.stderr.startswith("Configuration refused: GPU_RESUME_THRESHOLD (85) must be below ")
    assert done.stderr.endswith("(queue antenna-slow)\n")
    assert done.stderr.count("\n") == 1


def test_nothing_that_production_needs_has_a_default():
    """Incident 10: a host without NATS_URL fell back to localhost and lost every acknowledgement."""
    assert {name for name, value, _ in WRONG.values() if not value} == set(GOOD) - {"DJANGO_SETTINGS_MODULE"}


DOORS = {
    "worker": ["-m", "ami.topology", "worker", "antenna-ingest"],
    "beat": ["-m", "ami.topology", "beat"],
    "flower": ["-m", "celery", "-A", "config", "flower", "--port=0"],
    "inspect": ["-m", "celery", "-A", "config", "inspect", "ping"],
    "web": ["-m", "gunicorn", "config.wsgi", "--preload", "--bind", "127.0.0.1:0"],
}


@pytest.mark.parametrize("argv", DOORS.values(), ids=DOORS)
def test_every_kind_of_process_is_stopped(run: Run, argv: list[str]):
    done = run(*argv, CELERY_BROKER_URL="")
    assert done.returncode != 0
    assert "Configuration refused: CELERY_BROKER_URL is not set; set it to something like amqp://" in done.stderr
    assert "Traceback" not in done.stderr
