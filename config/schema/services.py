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
        "", "The owner of the database; created when its volume is empty.", written=True, example="antenna"
    )
    postgres_password: str = variable("", "That user's password.", secret=True, written=True)
    postgres_db: str = variable("", "The database's name.", written=True, example="antenna")


class Services(NatsAccount, _Others, RabbitMQAccount):
    """The accounts of the services"""
