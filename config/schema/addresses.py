"""What a process needs to find its services, and the keys to them."""

from ami.environment.declaration import Names, Variables, variable
from ami.topology.process import PROCESSES

WEB, WORKER, BEAT, FLOWER, SETUP = PROCESSES


class Addresses(Variables):
    """Addresses and keys"""

    django_secret_key: str = variable(
        "",
        "Signs sessions, tokens and links to files; 50 random characters or more.",
        secret=True,
        written=True,
        needed_by=(WEB, WORKER),
        example="50 random characters from secrets.token_urlsafe(50)",
    )
    django_allowed_hosts: Names = variable(
        (),
        "The host names of web, separated by commas; `web` is its name in the other containers.",
        written=True,
        needed_by=(WEB,),
        example="antenna.example.org,web",
    )
    celery_broker_url: str = variable(
        "",
        "The broker; the same user, password and vhost as RABBITMQ_* in .env.services. Separate several nodes by "
        "semicolons, each a whole URL. A broker over a folder or a bucket begins with objectstore+.",
        secret=True,
        written=True,
        needed_by=PROCESSES,
        example="amqp://antenna:PASSWORD@rabbitmq:5672/antenna",
    )
    rabbitmq_management_url: str = variable(
        "",
        "The broker's management API, for `queues check --live`, `queues rollout`, policies and Flower's Broker page; "
        "empty: the check lists what it could not see.",
        secret=True,
        written=True,
        example="http://antenna:PASSWORD@rabbitmq:15672",
        schemes=("http", "https"),
    )
    redis_url: str = variable(
        "",
        "The cache and the task results that are kept; the same password as REDIS_PASSWORD in .env.services.",
        secret=True,
        written=True,
        needed_by=(WEB, WORKER),
        example="redis://:PASSWORD@redis:6379/0",
        schemes=("redis", "rediss"),
    )
    database_url: str = variable(
        "",
        "The database; the user and password of DATABASE_* and the name of POSTGRES_DB in .env.services.",
        secret=True,
        written=True,
        needed_by=(WEB, WORKER, BEAT, SETUP),
        example="postgres://antenna:PASSWORD@postgres:5432/antenna",
    )
    nats_url: str = variable(
        "",
        "NATS JetStream; the same user and password as NATS_USER and NATS_PASSWORD in .env.services.",
        secret=True,
        written=True,
        needed_by=(WEB, WORKER),
        example="nats://antenna:PASSWORD@nats:4222",
        schemes=("nats", "tls"),
    )
    flower_basic_auth: str = variable(
        "",
        "Flower's logins, as USER:PASSWORD, separated by commas; it does not start without one.",
        secret=True,
        written=True,
        example="operator:PASSWORD",
    )
