"""No password of a broker is shown, whichever transport of kombu's it has."""

import pytest
from celery.app.utils import filter_hidden_settings
from kombu import Connection
from kombu.transport import TRANSPORT_ALIASES

from ami.celery.broker_info import MaskBroker, masked_info
from ami.environment.url_login import masked_url
from ami.queues.redaction import redact_text
from ami.transports import register
from config.celery_app import app

SECRET = "open-sesame"  # noqa: S105
OURS = ["amqp", "amqps", "redis", "rediss", "sentinel", "memory", "filesystem"]
STORES = [f"objectstore+{scheme}" for scheme in ("file", "memory", "s3", "gs", "az")]

register()


def _connection(scheme: str) -> Connection:
    url = f"{scheme}://user:{SECRET}@host.example/place"
    options = {"sentinel_kwargs": {"password": SECRET}, "predefined_queues": {"q": {"secret_access_key": SECRET}}}
    return Connection(f"{url};{url}", transport_options=options, ssl={"password": SECRET})


@pytest.mark.parametrize("scheme", sorted({*TRANSPORT_ALIASES, *STORES, "sqla+postgresql"}))
def test_info_of_every_transport_shows_no_password(scheme):
    try:
        info = _connection(scheme).info()
    except Exception:  # The transport's library is not here: what kombu shows of one that parses its URL itself.
        url = f"{scheme}://user:{SECRET}@host.example/place"
        info = {"hostname": url, "alternates": [url, url]}
    assert SECRET not in repr(masked_info(info))


@pytest.mark.parametrize("scheme", [*OURS, *STORES])
def test_logs_of_a_supported_transport_show_no_password(scheme):
    connection = _connection(scheme)
    assert SECRET not in connection.as_uri()
    assert SECRET not in repr(connection)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://user:a/b@c@host:1/v?password=x", "amqp://user:**@host:1/v"),
        ("azureservicebus://policy:k/e+y=@space", "azureservicebus://policy:**@space"),
        ("redis://:x@host/0", "redis://:**@host/0"),
        ("redis://user@host/0", "redis://user@host/0"),
        ("host.example", "host.example"),
        ("objectstore+s3://KEY:/a/b@bucket/prefix", "objectstore+s3://KEY:**@bucket/prefix"),
        ("objectstore+s3://a/b@bucket/prefix", "objectstore+s3://**@bucket/prefix"),
        ("objectstore+file:///a/b@c", "objectstore+file:///a/b@c"),
    ],
)
def test_a_password_with_any_character_is_masked(url, shown):
    assert masked_url(url) == shown


@pytest.mark.parametrize("secret", [f"{SECRET}/AND-MORE", f"/{SECRET}", f"12/{SECRET}", f"a/b@{SECRET}"])
@pytest.mark.parametrize("store", [each for each in STORES if not each.endswith("file")])
def test_secret_with_a_slash_is_shown_by_nothing(store, secret):
    url = f"{store}://KEY:{secret}@bucket/prefix"
    connection = Connection(url)
    shown = [connection.as_uri(), repr(connection), repr(masked_info(connection.info())), redact_text(f"to {url}:")]
    shown.append(repr(filter_hidden_settings({"broker_url": url, "broker_write_url": url})))
    with pytest.raises(ValueError, match="credentials belong into the environment") as refused:
        connection.connect()
    for each in (*shown, repr(refused.value)):
        assert SECRET not in each
        assert "AND-MORE" not in each


def test_workers_replace_what_celery_shows():
    assert MaskBroker in app.steps["consumer"]
