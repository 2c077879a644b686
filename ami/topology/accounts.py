"""The accounts that RabbitMQ and NATS begin with, read from the environment or from files."""

from collections.abc import Mapping, Sequence

from ami.environment.declaration import Variable, Variables, variable, variables
from ami.environment.errors import EnvironmentRefused
from ami.environment.reader import read
from ami.environment.secret_files import PLACEHOLDER, placeholder_refusal, read_files
from ami.topology.errors import TopologyError


class RabbitMQAccount(Variables):
    """RabbitMQ's account"""

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


class NatsAccount(Variables):
    """NATS's account"""

    nats_user: str = variable("", "NATS's user.", secret=True, written=True, example="antenna")
    nats_password: str = variable("", "That user's password.", secret=True, written=True)


def accounts(environ: Mapping[str, str], *declared: type[Variables]) -> list[str]:
    """Return the values of these accounts in the order of their fields; <NAME>_FILE may name a file with the value.

    Raises:
        TopologyError: values are missing, given twice, of several lines or still the placeholder; one sentence names
            all that are missing, and none contains a value.
    """
    given, needed = dict(environ), [each for account in declared for each in variables(account)]
    _refuse_missing(given, needed)
    try:
        read_files([each.name for each in needed], given)
        values = [str(value) for account in declared for value in read(account, given).model_dump().values()]
    except EnvironmentRefused as error:
        raise TopologyError(str(error)) from None
    for each, value in zip(needed, values, strict=True):
        if "\n" in value:
            raise TopologyError(f"{each.name} holds more than one line; let it be the value and nothing else.")
        if PLACEHOLDER in value:
            raise TopologyError(placeholder_refusal(each.name))
    return values


def _refuse_missing(environ: Mapping[str, str], needed: Sequence[Variable]) -> None:
    missing = [each.name for each in needed if not (environ.get(each.name) or environ.get(each.file))]
    if missing:
        are, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        raise TopologyError(
            f"{', '.join(missing)} {are} not set; set {them} in .env.services, or <NAME>_FILE to a file with the value."
        )
