"""Production: nothing has a default that could reach the wrong service, and every secret is required."""

from .base import *  # noqa: F403
from .base import ANTENNA_PROXIES, STORAGES
from .brokers import EXAMPLE, refuse_unfit, transport_options
from .databases import caches, databases
from .environment import env, on_or_off, refuse, refuse_placeholder, required, required_url

SECRET_KEY = required("DJANGO_SECRET_KEY", "50 random characters from secrets.token_urlsafe(50)")
if len(SECRET_KEY) < 50 or len(set(SECRET_KEY)) < 5:  # the bounds of Django's own check security.W009
    refuse("DJANGO_SECRET_KEY has fewer than 50 random characters; make one with secrets.token_urlsafe(50).")

CELERY_BROKER_URL = required("CELERY_BROKER_URL", EXAMPLE)
refuse_unfit(CELERY_BROKER_URL)
CELERY_BROKER_TRANSPORT_OPTIONS = transport_options(CELERY_BROKER_URL)
REDIS_URL = required_url("REDIS_URL", "redis://:PASSWORD@redis:6379/0", ("redis", "rediss"))
NATS_URL = required_url("NATS_URL", "nats://antenna:PASSWORD@nats:4222", ("nats", "tls"), password=False)
CELERY_RESULT_BACKEND = env.str("CELERY_RESULT_BACKEND", default="") or REDIS_URL
DATABASES = databases(
    required_url("DATABASE_URL", "postgres://antenna:PASSWORD@postgres:5432/antenna", ("postgres", "postgresql"))
)
CACHES = caches(REDIS_URL)
_hosts = required("DJANGO_ALLOWED_HOSTS", "antenna.example.org").split(",")
ALLOWED_HOSTS = [host.strip() for host in _hosts if host.strip()]
if not ALLOWED_HOSTS:
    refuse("DJANGO_ALLOWED_HOSTS names no host; set it to something like antenna.example.org.")

#: What is not required is refused all the same while it is the placeholder.
for _name in ("RABBITMQ_MANAGEMENT_URL", "CELERY_RESULT_BACKEND", "AWS_SECRET_ACCESS_KEY"):
    refuse_placeholder(_name)

if bucket := env.str("ANTENNA_S3_BUCKET", default=""):
    _options = {
        "bucket_name": bucket,
        "endpoint_url": env.str("ANTENNA_S3_ENDPOINT_URL", default=None),
        # Links are signed; servers other than Amazon's take no older way.
        "signature_version": "s3v4",
    }
    STORAGES = {
        **STORAGES,
        "default": {"BACKEND": "storages.backends.s3.S3Storage", "OPTIONS": {**_options, "location": "media"}},
        "results": {"BACKEND": "storages.backends.s3.S3Storage", "OPTIONS": {**_options, "location": "results"}},
    }

ANTENNA_REFUSE_INTERNAL_ENDPOINTS = True

SECURE_SSL_REDIRECT = on_or_off("DJANGO_SECURE_SSL_REDIRECT", default=True)
if SECURE_SSL_REDIRECT and not ANTENNA_PROXIES:
    refuse(
        "ANTENNA_PROXIES is 0 and DJANGO_SECURE_SSL_REDIRECT is on: web speaks no https and believes no proxy that "
        "does, so it would redirect every request to itself. Set ANTENNA_PROXIES to the number of proxies before web, "
        "usually 1, or DJANGO_SECURE_SSL_REDIRECT to 0."
    )
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if ANTENNA_PROXIES else None
# The health check's requests pass no proxy.
SECURE_REDIRECT_EXEMPT = [r"^livez$"]
SECURE_HSTS_SECONDS = 31_536_000
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
CSRF_TRUSTED_ORIGINS = env.list("DJANGO_CSRF_TRUSTED_ORIGINS", default=[])
