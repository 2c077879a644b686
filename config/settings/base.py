"""Settings that every place shares."""

from ami.governor import settings as governor
from ami.governor.errors import GovernorError
from ami.topology import broker
from ami.topology.errors import TopologyError
from ami.topology.router import TaskRouter
from ami.topology.table import FALLBACK
from ami.topology.topology import load
from config.schema.environment import django_settings
from config.settings_module import exists

from . import process_seconds
from .databases import DATABASE_RESULTS, wrong_results
from .environment import BASE_DIR, refuse, values
from .mail import mail

try:
    ANTENNA_TOPOLOGY = load()
    # Only workers use the governor's settings, but every process refuses wrong ones.
    for _row in (None, *ANTENNA_TOPOLOGY.workloads):
        governor.load(_row)
except (TopologyError, GovernorError) as error:
    refuse(*str(error).splitlines())

if _wrong := process_seconds.wrong(ANTENNA_TOPOLOGY, values.antenna_process_seconds):
    refuse(_wrong)
if _missing := [name for name in values.antenna_extra_tasks if not exists(name)]:
    refuse(f"ANTENNA_EXTRA_TASKS names '{_missing[0]}', which is not a module here; correct it or unset it.")
if _wrong := wrong_results(values.celery_result_backend):
    refuse(_wrong)
if values.antenna_alert_email and not values.email_url:
    refuse("ANTENNA_ALERT_EMAIL is set and EMAIL_URL is not; set it to the mail server, or unset both.")

# ANTENNA_PUBLIC_URL, NATS_TASK_TTR and the like: every public variable of config/schema under its own name.
globals().update(django_settings(values))
ANTENNA_METRICS_TOKEN = values.antenna_metrics_token
SENTRY_DSN, SENTRY_ENVIRONMENT = values.sentry_dsn, values.sentry_environment

# --- Django -----------------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "config.apps.AntennaAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "django_celery_beat",
    "django_celery_results",
    "ami.admission",
    "ami.queues",
    "ami.telemetry",
    "ami.main",
    "ami.ml",
    "ami.jobs",
    "ami.exports",
    "ami.console",
    "ami.adopt",
    "config.apps.CompositionConfig",
]
MIDDLEWARE = [
    "ami.main.services.response_headers.ResponseHeadersMiddleware",
    "ami.main.services.request_body.RequestBodyMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "ami.main.api.slashes.EitherSlashMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "ami.queues.middleware.FailedViewMiddleware",
    "ami.main.api.audit.AuditMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # Before Django's own: the head of every page of the admin.
        "DIRS": [BASE_DIR / "config/templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
AUTH_USER_MODEL = "main.User"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
USE_TZ = True
TIME_ZONE = "UTC"
#: Times in lists and forms of the admin: `ami.celery.shown_time`.
FORMAT_MODULE_PATH = ["config.formats"]
LANGUAGE_CODE = "en-gb"
STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "static"
# Nothing serves the media folder: files are requested from the API, which checks a role or a signature. Django's test
# server wants an address all the same.
MEDIA_URL = "/media/"
MEDIA_ROOT = values.antenna_media_root or str(BASE_DIR / "media")

#: What a folder of ours holds is for its owner alone. Static files are not among them: they are built as another user.
PRIVATE_FILES = {"file_permissions_mode": 0o600, "directory_permissions_mode": 0o700}
STORAGES = {
    # It overwrites, as a bucket does: a crop that is made twice is the same file.
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {**PRIVATE_FILES, "allow_overwrite": True},
    },
    "results": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {**PRIVATE_FILES, "location": values.antenna_results_root or f"{MEDIA_ROOT}-results"},
    },
    # The messages of dead letters that are too large for a row.
    "letters": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {
            **PRIVATE_FILES,
            "location": f"{values.antenna_results_root or f'{MEDIA_ROOT}-results'}/letters",
            "allow_overwrite": True,
        },
    },
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "ami.main.api.authentication.TokenAuthentication",
        "ami.main.api.session_authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PAGINATION_CLASS": "rest_framework.pagination.LimitOffsetPagination",
    "PAGE_SIZE": 50,
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["ami.main.api.parsers.BoundedJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    # Or `format=`, which is a filter here, would choose a renderer, and answer 404.
    "URL_FORMAT_OVERRIDE": None,
    "EXCEPTION_HANDLER": "ami.jobs.api.errors.exception_handler",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Antenna",
    "DESCRIPTION": "Insect monitoring: captures, machine-learning jobs and the contract of their workers.",
    "VERSION": "2.0.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v2",
    "OAS_VERSION": "3.1.0",
    "ENUM_NAME_OVERRIDES": {"JobStatusEnum": "ami.jobs.models.states.JobStatus"},
}

LOG_LEVEL = values.antenna_log_level
LOG_FORMAT = values.antenna_log_format
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": f"config.logs.{LOG_FORMAT.title()}Formatter"}},
    "filters": {"outages": {"()": "ami.celery.outages.OutageFilter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["outages"]}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {"httpx": {"level": "WARNING"}, "httpcore": {"level": "WARNING"}},
}

# --- Services ---------------------------------------------------------------------------------------------------
NATS_URL = values.nats_url
#: Local settings have a URL all the same; a machine without NATS misses nothing until a job asks for it.
NATS_IS_CONFIGURED = bool(values.nats_url)
REDIS_URL = values.redis_url
RABBITMQ_MANAGEMENT_URL = values.rabbitmq_management_url
ANTENNA_RESCUE_WEBHOOK_URL = values.antenna_rescue_webhook_url
ANTENNA_ALERT_WEBHOOK_URL = values.antenna_alert_webhook_url
ANTENNA_ALERT_WEBHOOK_SECRET = values.antenna_alert_webhook_secret
ANTENNA_ALERT_EMAIL = values.antenna_alert_email
ANTENNA_ALERT_INTERVAL_SECONDS = values.antenna_alert_interval_seconds
ANTENNA_ALERT_DURATION_FACTOR = values.antenna_alert_duration_factor
ANTENNA_ALERT_REPEAT_SECONDS = values.antenna_alert_repeat_seconds
ANTENNA_PUBLIC_URL = values.antenna_public_url
ANTENNA_STARTED_BY = values.antenna_started_by
globals().update(mail(values.email_url, values.antenna_email_from))
ANTENNA_LETTER_DAYS = values.antenna_letter_days
ANTENNA_AUDIT_DAYS = values.antenna_audit_days
ANTENNA_LETTER_MINUTES = values.antenna_letter_minutes

#: Whether Flower, which can stop workers and send tasks, refuses to start without a login (config/flower.py).
FLOWER_LOGIN_REQUIRED = True

#: Whether addresses that users entered are refused where they lead to this machine or to a cloud's metadata
#: (ami.main.services.outbound), unless ANTENNA_ALLOWED_ENDPOINTS lists them.
ANTENNA_REFUSE_INTERNAL_ENDPOINTS = False

# --- Celery: where a task goes ----------------------------------------------------------------------------------
CELERY_TASK_DEFAULT_QUEUE = FALLBACK
CELERY_TASK_DEFAULT_EXCHANGE = broker.EXCHANGE_NAME
CELERY_TASK_DEFAULT_EXCHANGE_TYPE = broker.EXCHANGE.type
CELERY_TASK_DEFAULT_ROUTING_KEY = FALLBACK
CELERY_TASK_QUEUES = broker.task_queues(ANTENNA_TOPOLOGY)
# A deployment's settings may replace it with dictionaries, which config/task_routes.py puts on top of the table.
CELERY_TASK_ROUTES = (TaskRouter(ANTENNA_TOPOLOGY),)
CELERY_TASK_CREATE_MISSING_QUEUES = False

#: Modules with further tasks, which every worker imports beside the apps' own.
CELERY_IMPORTS = values.antenna_extra_tasks

#: Tasks that are meant to run on the fallback queue; every other unrouted task is a warning of `manage.py check`.
ANTENNA_FALLBACK_TASKS: tuple[str, ...] = ()

# --- Celery: delivery -------------------------------------------------------------------------------------------
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_ACKS_ON_FAILURE_OR_TIMEOUT = False
CELERY_TASK_RETRY_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CONSUMER = "ami.celery.message_guard:GuardedWorker"
# A message whose connection was lost is redelivered to another worker: the copy running here is ended.
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True
CELERY_TASK_SERIALIZER = CELERY_RESULT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]

# --- Celery: the connection. Each place sets its URL; brokers.py has the options of each kind -----------------------
# RabbitMQ misses a silent worker after about twice this time, also without its management API.
CELERY_BROKER_HEARTBEAT = broker.HEARTBEAT_SECONDS
CELERY_BROKER_CONNECTION_TIMEOUT = 4
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 3, "interval_start": 0, "interval_step": 0.3, "interval_max": 1}

# --- Celery: results and events. Results are ignored unless a task stores them (incident 11) ----------------------
CELERY_TASK_IGNORE_RESULT = True
CELERY_RESULT_BACKEND = values.celery_result_backend or REDIS_URL or DATABASE_RESULTS
CELERY_RESULT_EXPIRES = 24 * 3600
CELERY_RESULT_EXTENDED = True
CELERY_WORKER_SEND_TASK_EVENTS = values.antenna_task_events
CELERY_WORKER_HIJACK_ROOT_LOGGER = False

# --- Celery: time and beat --------------------------------------------------------------------------------------
CELERY_TIMEZONE = "UTC"
CELERY_ENABLE_UTC = True
CELERY_BEAT_SCHEDULER = "ami.celery.scheduler:Scheduler"
CELERY_BEAT_MAX_LOOP_INTERVAL = 5
DJANGO_CELERY_BEAT_TZ_AWARE = True

DEBUG = False
ALLOWED_HOSTS = list(values.django_allowed_hosts) or ["localhost", "127.0.0.1"]
SILENCED_SYSTEM_CHECKS: list[str] = []
