"""Reads the old broker's URL from the environment: on a command line every user could read its password."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from ami.adopt.errors import WrongSource
from ami.environment.errors import EnvironmentRefused
from ami.environment.secret_files import read_files

SCHEMES = ("amqp", "amqps", "pyamqp")
EXAMPLE = "amqp://USER:PASSWORD@HOST:5672/VHOST"

NOT_A_NAME = (
    "--from-env takes the name of a variable, not the URL itself, whose password others could read here: put the URL "
    "into OLD_BROKER_URL, or into a file that OLD_BROKER_URL_FILE names, and write --from-env OLD_BROKER_URL."
)


def read_url(name: str, environ: Mapping[str, str]) -> str:
    """Return the URL in the variable ``name``, or in the file that ``<name>_FILE`` names.

    Raises:
        WrongSource: it is missing or cannot be a URL of RabbitMQ; the text repeats no value.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise WrongSource(NOT_A_NAME)
    name, read = name.removesuffix("_FILE"), dict(environ)
    try:
        read_files([name], read)
    except EnvironmentRefused as error:
        raise WrongSource(str(error)) from None
    url = read.get(name, "").strip()
    if not url:
        raise WrongSource(
            "The variable that --from-env names is not set here; put the old broker's URL there, or the path of a file "
            "with it into the variable of that name with _FILE."
        )
    if not all(map(_is_amqp, url.split(";"))):
        raise WrongSource(f"{name} is not a URL of RabbitMQ; write it like {EXAMPLE}.")
    return url


def _is_amqp(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
