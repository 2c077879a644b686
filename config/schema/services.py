"""The accounts of the services beside Antenna's processes, in `.env.services`; no process of ours reads these."""

from ami.environment.declaration import Variables, variable


class Services(Variables):
    """The accounts of the services"""

    rabbitmq_user: str = variable(
        "",
        "RabbitMQ's only user, its administrator; created when its volume is empty.",
        secret=True,
        written=True,
        example="antenna",
    )
    rabbitmq_password: str = variable("", "That user's password.", secret=True, written=True)
    rabbitmq_vhost: str = variable(
        "",
        "RabbitMQ's virtual host; created when its volume is empty.",
        secret=True,
        written=True,
        example="antenna",
    )
    erlang_cookie: str = variable(
        "", "The secret shared by the nodes of docker-compose.cluster.yml; any long random word.", secret=True
    )
    redis_password: str = variable("", "Redis's password.", secret=True, written=True)
    postgres_user: str = variable(
        "", "The owner of the database; created when its volume is empty.", written=True, example="antenna"
    )
    postgres_password: str = variable("", "That user's password.", secret=True, written=True)
    postgres_db: str = variable("", "The database's name.", written=True, example="antenna")
    nats_user: str = variable("", "NATS's user.", secret=True, written=True, example="antenna")
    nats_password: str = variable("", "That user's password.", secret=True, written=True)
