"""Production: nothing has a default that could reach the wrong service, and every secret is required."""

from collections.abc import Iterator

from ami.environment.declaration import of
from config.schema.addresses import Addresses
from config.schema.environment import missing, placeholders
from config.schema.monitoring import Monitoring
from config.schema.urls import wrong_url

from .base import *  # noqa: F403
from .base import STORAGES
from .brokers import transport_options, unfit_broker
from .databases import caches, databases, unfit_database
from .environment import refuse, values

METRICS_TOKEN_CHARACTERS = 32

if wrong := [*missing(values), *placeholders(values)]:
    refuse(*wrong)


def _wrong_values() -> Iterator[str]:
    """Yield a sentence for each value that cannot be used; one that this process does not need may be absent."""
    key = values.django_secret_key
    if key and (len(key) < 50 or len(set(key)) < 5):  # the bounds of Django's own check security.W009
        yield (
            f"{of(Addresses, 'django_secret_key').name} has fewer than 50 random characters; make one with "
            "secrets.token_urlsafe(50)."
        )
    if 0 < len(values.antenna_metrics_token) < METRICS_TOKEN_CHARACTERS:
        yield (
            f"{of(Monitoring, 'antenna_metrics_token').name} has fewer than {METRICS_TOKEN_CHARACTERS} characters; "
            "make one with secrets.token_urlsafe(32)."
        )
    if values.celery_broker_url:
        yield unfit_broker(values.celery_broker_url)
    if values.redis_url:
        yield wrong_url(of(Addresses, "redis_url"), values.redis_url, ("redis", "rediss"))
    if values.nats_url:
        yield wrong_url(of(Addresses, "nats_url"), values.nats_url, ("nats", "tls"), password=False)
    if values.database_url:
        yield unfit_database(values.database_url)


if wrong := list(filter(None, _wrong_values())):
    refuse(*wrong)

SECRET_KEY = values.django_secret_key
CELERY_BROKER_URL = values.celery_broker_url
CELERY_BROKER_TRANSPORT_OPTIONS = transport_options(CELERY_BROKER_URL, values.antenna_keepalive_seconds)
DATABASES = databases(values.database_url, values.antenna_keepalive_seconds) if values.database_url else {}
CACHES = caches(values.redis_url, values.antenna_keepalive_seconds)
ALLOWED_HOSTS = list(values.django_allowed_hosts)

if bucket := values.antenna_s3_bucket:
    _options = {
        "bucket_name": bucket,
        "endpoint_url": values.antenna_s3_endpoint_url or None,
        # Links are signed; servers other than Amazon's take no older way.
        "signature_version": "s3v4",
    }
    STORAGES = {
        **STORAGES,
        "default": {"BACKEND": "storages.backends.s3.S3Storage", "OPTIONS": {**_options, "location": "media"}},
        "results": {"BACKEND": "storages.backends.s3.S3Storage", "OPTIONS": {**_options, "location": "results"}},
    }

ANTENNA_REFUSE_INTERNAL_ENDPOINTS = True

SECURE_SSL_REDIRECT = values.django_secure_ssl_redirect
if SECURE_SSL_REDIRECT and not values.antenna_proxies and values.antenna_process in (None, "web"):
    refuse(
        "ANTENNA_PROXIES is 0 and DJANGO_SECURE_SSL_REDIRECT is on: web speaks no https and believes no proxy that "
        "does, so it would redirect every request to itself. Set ANTENNA_PROXIES to the number of proxies before web, "
        "usually 1, or DJANGO_SECURE_SSL_REDIRECT to 0."
    )
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if values.antenna_proxies else None
# The health check's requests pass no proxy, nor do Prometheus's.
SECURE_REDIRECT_EXEMPT = [r"^livez$", r"^metrics$"]
SECURE_HSTS_SECONDS = 31_536_000
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
CSRF_TRUSTED_ORIGINS = list(values.django_csrf_trusted_origins)
