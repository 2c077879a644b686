"""A Celery application whose workers keep to their memory: ``celery -A examples.governed_worker worker -c 2``."""

from celery import Celery

from ami import governor, transports

transports.register()  # For the folder; RabbitMQ and Redis need no such line.
app = Celery("governed", broker="objectstore+file:///tmp/governed")  # CELERY_BROKER_URL takes precedence.
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1)
governor.install(app, soft_kib=200_000, hard_kib=400_000, settings={"memory_throttle_threshold": 95.0})
kept: list[bytes] = []


@app.task
def keep(mebibytes: int) -> int:
    """Keep so much memory. Above the soft limit the process is replaced, above the hard one the task fails."""
    kept.append(b"x" * mebibytes * 1024**2)
    return len(kept)
