"""Production with a good environment."""

import json
import socket

import pytest

from .conftest import SECRETS, Run

pytestmark = pytest.mark.processes

SHOW = """
import json
from django.conf import settings
names = {names!r}
print(json.dumps({{name: getattr(settings, name) for name in names}}))
"""


@pytest.fixture
def shown(run: Run):
    def shown(*names: str, **changes: str) -> dict:
        done = run("-c", SHOW.format(names=names), **changes)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return shown


def test_a_good_environment_passes_every_deployment_check(run: Run):
    done = run("manage.py", "check", "--deploy", "--fail-level", "WARNING")
    assert done.returncode == 0, done.stderr
    assert "no issues (0 silenced)" in done.stdout


def test_no_service_defaults_to_localhost(shown):
    """Incident 10."""
    names = ("CELERY_BROKER_URL", "CELERY_RESULT_BACKEND", "REDIS_URL", "NATS_URL", "DATABASES", "CACHES", "FLOWER_URL")
    text = json.dumps(shown(*names, "ALLOWED_HOSTS", "RABBITMQ_MANAGEMENT_URL"))
    assert "localhost" not in text
    assert "127.0.0.1" not in text


def test_entered_addresses_are_checked_and_hsts_is_sent(shown):
    names = ("ANTENNA_REFUSE_INTERNAL_ENDPOINTS", "ANTENNA_ALLOWED_ENDPOINTS", "ANTENNA_MAX_MEGAPIXELS", "MIDDLEWARE")
    found = shown(*names, "SECURE_HSTS_SECONDS", ANTENNA_ALLOWED_ENDPOINTS="Minio.example, 127.0.0.0/8")
    assert found["ANTENNA_REFUSE_INTERNAL_ENDPOINTS"] is True
    assert found["ANTENNA_ALLOWED_ENDPOINTS"] == ["minio.example", "127.0.0.0/8"]
    assert found["ANTENNA_MAX_MEGAPIXELS"] == 89
    assert found["SECURE_HSTS_SECONDS"] == 365 * 86_400
    assert found["MIDDLEWARE"][0] == "ami.main.services.response_headers.ResponseHeadersMiddleware", (
        "so that no answer lacks them"
    )


def test_results_are_ignored_unless_a_task_says_otherwise_and_never_go_to_rpc(shown):
    """Incident 11: results to rpc:// exhausted 65,535 channels."""
    settings = shown("CELERY_TASK_IGNORE_RESULT", "CELERY_RESULT_BACKEND")
    assert settings["CELERY_TASK_IGNORE_RESULT"] is True
    assert settings["CELERY_RESULT_BACKEND"] == f"redis://:{SECRETS['redis']}@redis.invalid:6379/0"


def test_results_that_are_stored_expire(shown):
    """Incident 12: result keys without bounds."""
    assert 0 < shown("CELERY_RESULT_EXPIRES")["CELERY_RESULT_EXPIRES"] <= 24 * 3600


def test_publishes_are_confirmed_and_retried_without_heartbeat_option(shown):
    """Incident 13: as a transport option a publisher would promise heartbeats and send none."""
    settings = shown("CELERY_BROKER_TRANSPORT_OPTIONS", "CELERY_TASK_PUBLISH_RETRY_POLICY", "CELERY_BROKER_HEARTBEAT")
    options = settings["CELERY_BROKER_TRANSPORT_OPTIONS"]
    assert "heartbeat" not in options
    assert options["confirm_publish"] is True
    assert options["socket_settings"][str(socket.TCP_KEEPIDLE)] < 3600, "incident 5: a firewall drops after an hour"
    assert settings["CELERY_TASK_PUBLISH_RETRY_POLICY"]["max_retries"] >= 1
    assert settings["CELERY_BROKER_HEARTBEAT"] > 0


def test_one_setting_keeps_every_connection_alive(shown):
    """Incident 5: a firewall forgets idle connections."""
    names = ("CELERY_BROKER_TRANSPORT_OPTIONS", "CACHES", "DATABASES", "ANTENNA_KEEPALIVE_SECONDS")
    settings = shown(*names, ANTENNA_KEEPALIVE_SECONDS="30")
    expected = {str(socket.TCP_KEEPIDLE): 30, str(socket.TCP_KEEPINTVL): 5, str(socket.TCP_KEEPCNT): 9}
    assert settings["CELERY_BROKER_TRANSPORT_OPTIONS"]["socket_settings"] == expected
    assert settings["CACHES"]["default"]["OPTIONS"]["socket_keepalive_options"] == expected
    assert settings["ANTENNA_KEEPALIVE_SECONDS"] == 30, "NATS's and the results'"
    options = settings["DATABASES"]["default"]["OPTIONS"]
    assert [options[name] for name in ("keepalives_idle", "keepalives_interval", "keepalives_count")] == [30, 5, 9]
    assert options["tcp_user_timeout"] == 75_000


def test_broker_over_a_store_gets_no_amqp_options(shown):
    url = "objectstore+s3://antenna-broker/production"
    settings = shown("CELERY_BROKER_URL", "CELERY_BROKER_TRANSPORT_OPTIONS", CELERY_BROKER_URL=url)
    assert settings == {"CELERY_BROKER_URL": url, "CELERY_BROKER_TRANSPORT_OPTIONS": {}}


def test_an_empty_variable_counts_as_not_set(shown):
    empty = dict.fromkeys(
        ("DJANGO_SECURE_SSL_REDIRECT", "ANTENNA_LOG_LEVEL", "NATS_TASK_TTR", "CELERY_RESULT_BACKEND"), ""
    )
    settings = shown("SECURE_SSL_REDIRECT", "NATS_TASK_TTR", "CELERY_RESULT_BACKEND", **empty)
    assert settings["SECURE_SSL_REDIRECT"] is True
    assert settings["NATS_TASK_TTR"] == 300
    assert settings["CELERY_RESULT_BACKEND"].startswith("redis://")


def test_spaces_between_hosts_do_no_harm(shown):
    assert shown("ALLOWED_HOSTS", DJANGO_ALLOWED_HOSTS="a.example, b.example,")["ALLOWED_HOSTS"] == [
        "a.example",
        "b.example",
    ]


def test_one_setting_says_whose_address_and_whose_https_are_believed(shown):
    names = ("ANTENNA_PROXIES", "SECURE_PROXY_SSL_HEADER", "SECURE_SSL_REDIRECT")
    assert shown(*names) == dict(zip(names, (1, ["HTTP_X_FORWARDED_PROTO", "https"], True), strict=True))
    off = {"ANTENNA_PROXIES": "0", "DJANGO_SECURE_SSL_REDIRECT": "0"}
    assert shown(*names, **off) == dict(zip(names, (0, None, False), strict=True))


def test_web_that_would_redirect_to_itself_for_ever_does_not_start(run: Run):
    for proxies in ("0", ""):
        done = run("-c", "from django.conf import settings; settings.DEBUG", ANTENNA_PROXIES=proxies)
        assert done.returncode == 1
        assert "Configuration refused: ANTENNA_PROXIES is 0" in done.stderr


ASK = """
import django
django.setup()
from django.test import Client
trusted = {"X-Forwarded-Proto": "https", "Host": "antenna.example.org"}
print([Client().get("/livez", headers=headers).status_code for headers in (trusted, {"Host": "antenna.example.org"})])
print([Client().get("/metrics", headers=headers).status_code for headers in (trusted, {"Host": "antenna.example.org"})])
print([Client().get("/nowhere", headers=headers).status_code for headers in (trusted, {"Host": "antenna.example.org"})])
"""


def test_only_health_and_metrics_are_answered_without_https(run: Run):
    token = {"ANTENNA_METRICS_TOKEN": "x" * 32}
    answers = run("-W", "ignore", "-c", ASK, **token).stdout.split("\n")
    assert answers[:3] == ["[200, 200]", "[401, 401]", "[404, 301]"]
    off = {"ANTENNA_PROXIES": "0", "DJANGO_SECURE_SSL_REDIRECT": "0"}
    answers = run("-W", "ignore", "-c", ASK, **off).stdout.split("\n")
    assert answers[:3] == ["[200, 200]", "[404, 404]", "[404, 404]"]


def test_short_token_of_the_metrics_is_refused_without_its_text(run: Run):
    done = run("-c", "from django.conf import settings; settings.DEBUG", ANTENNA_METRICS_TOKEN="hunter2")
    assert done.returncode == 1
    assert "ANTENNA_METRICS_TOKEN has fewer than 32 characters" in done.stderr
    assert "hunter2" not in done.stderr
