"""What web answers, to whom, and how large a request may be."""

from ipaddress import ip_network
from re import compile as pattern
from typing import Annotated, Literal

from pydantic import AfterValidator

from ami.environment.declaration import Names, Variables, variable

#: A name with a letter in it: what looks like a number is an address, or a mistake.
HOST_NAME = pattern(r"(?=.*[a-z_])[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")

MIB = 1024**2


def _hosts_or_networks(entries: tuple[str, ...]) -> tuple[str, ...]:
    found = tuple(entry.lower() for entry in entries)
    for entry in found:
        if not (_is_network(entry) or HOST_NAME.fullmatch(entry)):
            raise ValueError(
                f"has the entry '{entry}', which is neither a host name nor an address nor a network; write it like "
                "minio.example.org, 127.0.0.1 or 10.0.0.0/8, without scheme and port."
            )
    return found


def _is_network(entry: str) -> bool:
    try:
        ip_network(entry)
    except ValueError:
        return False
    return True


class Web(Variables):
    """Web"""

    django_settings_module: str = variable(
        "",
        "The settings module; local and test are not for deployments.",
        example="config.settings.production",
        by_image=True,
    )
    django_secure_ssl_redirect: bool = variable(
        True, "Whether http is redirected to https; 0 only where no proxy in front terminates https."
    )
    django_csrf_trusted_origins: Names = variable(
        (),
        "Origins whose forms are accepted besides web's own, separated by commas.",
        example="https://antenna.example.org",
        schemes=("http", "https"),
    )
    antenna_public_url: str = variable(
        "",
        "Web's address for users and processing services, for links to files in exports and in pushed requests.",
        example="https://antenna.example.org",
        schemes=("http", "https"),
    )
    antenna_services_url: str = variable(
        "",
        "Web's address in pushed requests, if processing services use another; its host is in DJANGO_ALLOWED_HOSTS.",
        example="http://web:8000",
        schemes=("http", "https"),
    )
    flower_url: str = variable(
        "",
        "Flower's address for users, for the admin's links to it.",
        example="https://flower.example.org",
        schemes=("http", "https"),
    )
    antenna_proxies: int = variable(
        0,
        "The number of proxies before web, whose X-Forwarded-For and X-Forwarded-Proto are trusted: 1 for the `proxy` "
        "of docker-compose.yml, or for an ingress; 2 where a proxy of yours is before it.",
        low=0,
        high=10,
        written=True,
        example="1",
    )
    data_upload_max_memory_size: int = variable(
        16 * MIB,
        "The largest form, and the largest JSON body except results, in bytes; each endpoint has its own lower limit.",
        low=1024,
        high=2048 * MIB,
    )
    # Bodies of 139 to 321 MB were seen (incident 45).
    antenna_result_max_bytes: int = variable(
        512 * MIB, "The largest body in bytes of one POST of results.", low=1024, high=2048 * MIB
    )
    antenna_result_max_elements: int = variable(
        10_000,
        "The maximum number of values in one result besides its scores, logits and labels.",
        low=100,
        high=1_000_000,
    )
    antenna_result_max_depth: int = variable(
        12, "The maximum nesting depth of lists and objects in one result.", low=10, high=100
    )
    antenna_next_job: bool = variable(
        False, "jobs/next/ answers pull workers with their next job; no release of the origin has it."
    )
    antenna_api_key: bool = variable(
        False,
        "Authorization: Api-Key takes a worker's token, too; no release of the origin has it.",
    )
    antenna_task_config: bool = variable(
        False,
        "Tasks of pull workers carry the pipeline's configuration in the job's project; no release of the origin has "
        "it.",
    )
    antenna_allowed_endpoints: Annotated[Names, AfterValidator(_hosts_or_networks)] = variable(
        (),
        "Addresses allowed for storage sources and processing services that production otherwise refuses (loopback, "
        "169.254.0.0/16 and the like): names, addresses or networks, separated by commas.",
        example="minio.internal.example,127.0.0.1,fd00:ec2::/64",
    )
    web_concurrency: int = variable(3, "The processes that answer web requests, four threads each.", low=1, high=1000)
    antenna_token_idle_days: int = variable(
        90, "Days until an unused API token of a person ends; a worker's does not end.", low=1, high=3650
    )
    antenna_log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = variable("INFO", "The log level.")
    antenna_log_format: Literal["text", "json"] = variable("text", "json for one object per line, or text.")
