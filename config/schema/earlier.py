"""Variables of the Antenna before, and those that belong in another file: what is read instead."""

_SERVICES = "it belongs in .env.services, for the services beside Antenna's processes"

#: Reported at start, and otherwise ignored.
SUCCESSORS = {
    "CELERY_WORKER_CONCURRENCY": "each queue has its own, such as ANTENNA_INGEST_CONCURRENCY",
    "CELERY_WORKER_MAX_TASKS_PER_CHILD": "each queue has its own, such as ANTENNA_INGEST_MAX_TASKS_PER_CHILD",
    "CELERY_WORKER_MAX_MEMORY_PER_CHILD": "each queue has its own, such as ANTENNA_INGEST_MAX_MEMORY_PER_CHILD_KIB",
    "CELERY_QUEUES": "a worker's queue is the argument of `python -m ami.topology worker`",
    "CELERY_FLOWER_USER": "set FLOWER_BASIC_AUTH to USER:PASSWORD",
    "CELERY_FLOWER_PASSWORD": "set FLOWER_BASIC_AUTH to USER:PASSWORD",
    "DJANGO_AWS_ACCESS_KEY_ID": "set AWS_ACCESS_KEY_ID",
    "DJANGO_AWS_SECRET_ACCESS_KEY": "set AWS_SECRET_ACCESS_KEY",
    "DJANGO_AWS_STORAGE_BUCKET_NAME": "set ANTENNA_S3_BUCKET",
    "DJANGO_AWS_S3_ENDPOINT_URL": "set ANTENNA_S3_ENDPOINT_URL",
    "DJANGO_AWS_S3_CUSTOM_DOMAIN": "files are served by signed links of ANTENNA_S3_ENDPOINT_URL",
    "DJANGO_DATA_UPLOAD_MAX_MEMORY_MB": "set DATA_UPLOAD_MAX_MEMORY_SIZE, in bytes",
    "DJANGO_LOG_LEVEL": "set ANTENNA_LOG_LEVEL",
    "DJANGO_READ_DOT_ENV_FILE": "no settings read .env; Compose does",
    "EXTERNAL_BASE_URL": "set ANTENNA_PUBLIC_URL",
    "EXTERNAL_HOSTNAME": "set ANTENNA_PUBLIC_URL",
    "RABBITMQ_DEFAULT_USER": "set RABBITMQ_USER in .env.services",
    "RABBITMQ_DEFAULT_PASS": "set RABBITMQ_PASSWORD in .env.services",
    "RABBITMQ_PASSWORD": _SERVICES,
    "REDIS_PASSWORD": _SERVICES,
    "POSTGRES_PASSWORD": _SERVICES,
    "NATS_PASSWORD": _SERVICES,
}

#: Refused: names that people expect, which mean something else or nothing.
MISTAKEN = {"GOVERNOR_MODE": "MEMORY_GOVERNOR", "GOVERNOR": "MEMORY_GOVERNOR"}
