"""What every container of ours has, whoever starts it: its variables, its waiting, and the files it touches."""

#: Without these no process starts; compose refuses before any container exists. Whoever gives one as a file (its name
#: with _FILE, for example DJANGO_SECRET_KEY_FILE=/run/secrets/django_secret_key) leaves it empty.
REQUIRED = ("DJANGO_SECRET_KEY", "DJANGO_ALLOWED_HOSTS", "CELERY_BROKER_URL", "REDIS_URL", "DATABASE_URL", "NATS_URL")
DEFAULTS = {"DJANGO_SETTINGS_MODULE": "config.settings.production", "ANTENNA_ROUTING": "split"}

#: What may lie in a file, named by the variable with _FILE behind it (config.settings.environment, above this package).
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

#: What `.env.example` writes wherever a secret belongs; production starts with none of them.
PLACEHOLDER = "change-me"

#: What else settings read: passed on when it is set, absent when it is not, so that the code's own default holds.
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

#: The settings of a worker's governor (ami.governor.settings, which stands above this package): for all queues, and as
#: ANTENNA_<KEY>_<NAME> for one. Passed on to workers alone, as OPTIONAL is.
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

#: Says what it waits for, then becomes the command behind it.
WAITING = ("python", "-m", "config.waiting", "python", "-m", "ami.topology")

#: What beat and workers touch while they move, at least every 5 s. One that has not for so long stands still, though
#: its process lives (incident 17: 4.6 days).
TICK_FILE = "/tmp/beat-tick"  # noqa: S108 - inside beat's own container
PULSE_FILE = "/tmp/worker-pulse"  # noqa: S108 - inside the worker's own container
FRESH_SECONDS = 60
