"""The accounts of the services beside Antenna's processes, in `.env.services`; no process of ours reads these."""

from ami.environment.declaration import Variables, variable
from ami.topology.accounts import NatsAccount, RabbitMQAccount


class _Others(Variables):
    """The accounts that the services read themselves"""

    erlang_cookie: str = variable(
        "", "The secret shared by the nodes of docker-compose.cluster.yml; 20 or more letters and digits.", secret=True
    )
    redis_password: str = variable("", "Redis's password.", secret=True, written=True)
    postgres_user: str = variable(
        "", "PostgreSQL's superuser; created when its volume is empty.", written=True, example="postgres"
    )
    postgres_password: str = variable("", "That user's password.", secret=True, written=True)
    postgres_db: str = variable("", "The database's name.", written=True, example="antenna")
    database_user: str = variable(
        "",
        "The user in DATABASE_URL, who owns the database and is not a superuser; created when the volume is empty.",
        written=True,
        example="antenna",
    )
    database_password: str = variable("", "That user's password; not the superuser's.", secret=True, written=True)


class Services(NatsAccount, _Others, RabbitMQAccount):
    """The accounts of the services"""
