"""What all our containers share on every platform: variables, the wait command, and the files for health checks."""

#: Required by every process; production refuses to start without them. A value may be given as a file (the name with
#: _FILE, for example DJANGO_SECRET_KEY_FILE=/run/secrets/django_secret_key).
REQUIRED = ("DJANGO_SECRET_KEY", "DJANGO_ALLOWED_HOSTS", "CELERY_BROKER_URL", "REDIS_URL", "DATABASE_URL", "NATS_URL")
DEFAULTS = {"DJANGO_SETTINGS_MODULE": "config.settings.production", "ANTENNA_ROUTING": "split"}

#: Variables whose value may come from a file named by <NAME>_FILE (read by config.settings.environment).
AS_FILES = (
    "DJANGO_SECRET_KEY",
    "CELERY_BROKER_URL",
    "RABBITMQ_MANAGEMENT_URL",
    "REDIS_URL",
    "DATABASE_URL",
    "NATS_URL",
    "CELERY_RESULT_BACKEND",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
)

#: The value of every secret in `.env.example` and `.env.services.example`; production refuses to start with it.
PLACEHOLDER = "change-me"

#: Other variables that settings read: passed on if set, absent otherwise, so that the code's own default applies.
OPTIONAL = (
    "ANTENNA_ALLOWED_ENDPOINTS",
    "ANTENNA_EXTRA_TASKS",
    "ANTENNA_FILE_URL_SECONDS",
    "ANTENNA_LOCAL_SOURCE_ROOTS",
    "ANTENNA_LOG_FORMAT",
    "ANTENNA_LOG_LEVEL",
    "ANTENNA_MAX_MEGAPIXELS",
    "ANTENNA_PROXIES",
    "ANTENNA_PUBLIC_URL",
    "ANTENNA_RESULT_MAX_BYTES",
    "ANTENNA_RESULT_MAX_DEPTH",
    "ANTENNA_RESULT_MAX_ELEMENTS",
    "ANTENNA_S3_BUCKET",
    "ANTENNA_S3_ENDPOINT_URL",
    "ANTENNA_SERVICES_URL",
    "ANTENNA_SLOW_ENABLED",
    "ANTENNA_TASK_EVENTS",
    "ANTENNA_TOKEN_IDLE_DAYS",
    "ANTENNA_WAIT_SECONDS",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "CELERY_RESULT_BACKEND",
    "DATA_UPLOAD_MAX_MEMORY_SIZE",
    "DJANGO_CSRF_TRUSTED_ORIGINS",
    "DJANGO_SECURE_SSL_REDIRECT",
    "FLOWER_URL",
    "NATS_MAX_ACK_PENDING",
    "NATS_MAX_DELIVER",
    "NATS_TASK_TTR",
    "RABBITMQ_MANAGEMENT_URL",
)

#: The governor's settings (ami.governor.settings): for all queues, and as ANTENNA_<KEY>_<NAME> for one queue. Passed on
#: like OPTIONAL, to workers only.
GOVERNOR = (
    "MEMORY_GOVERNOR",
    "MEMORY_THROTTLE_THRESHOLD",
    "MEMORY_RESUME_THRESHOLD",
    "GPU_THROTTLE_THRESHOLD",
    "GPU_RESUME_THRESHOLD",
    "SWAP_THROTTLE_THRESHOLD",
    "PRESSURE_THROTTLE_THRESHOLD",
    "PRESSURE_RESUME_THRESHOLD",
    "MEMORY_CHECK_INTERVAL",
    "MEMORY_MIN_HOLD_SECONDS",
    "MEMORY_MAX_HOLD_SECONDS",
    "MEMORY_INTERRUPT_BUSY",
    "MEMORY_RESERVATION",
    "MEMORY_CEILING",
    "WORKER_SINGLE_JOB_MODE",
    "MASTER_GRACE_PERIOD_SECONDS",
    "WORKER_STAGGER_SECONDS",
    "WORKER_COOLDOWN_SECONDS",
    "GOVERNOR_STATE_DIR",
)

#: Waits for the services and logs which, then execs the command after it.
WAITING = ("python", "-m", "config.waiting", "python", "-m", "ami.topology")

#: Files that beat and workers touch at least every 5 s while they make progress. An older file means that the process
#: hangs, although it is alive (incident 17: 4.6 days).
TICK_FILE = "/tmp/beat-tick"  # noqa: S108 - inside beat's own container
PULSE_FILE = "/tmp/worker-pulse"  # noqa: S108 - inside the worker's own container
FRESH_SECONDS = 60
