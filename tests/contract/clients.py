"""The real clients: how each is started, from which checkout, and the job that it gets."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MINIMAL = "processing_services/minimal"


@dataclass(frozen=True)
class Start:
    """What a client needs to know: its checkout, the API's address (without ``/api/v2``), a token, and the project."""

    checkout: Path
    url: str
    token: str
    project: int
    project_name: str
    home: Path
    port: int


@dataclass(frozen=True)
class Client:
    """One client: the variable of `make` with its checkout, a path that must be there, and its processes.

    ``slug`` is the pipeline that the job runs; ``pushes``: Antenna calls it. ``sources`` are folders of the checkout
    that its code is imported from. ``leaves`` is a file with the token that it writes and does not remove.
    """

    name: str
    variable: str
    version: str
    needs: str
    slug: str
    command: Callable[[Start], Sequence[str]]
    environment: Callable[[Start], dict[str, str]]
    sources: Sequence[str] = ("",)
    before: Callable[[Start], Sequence[str]] | None = None
    pushes: bool = False
    leaves: Path | None = None


def _worker(start: Start) -> dict[str, str]:
    return {
        "ANTENNA_API_URL": start.url,
        "ANTENNA_API_AUTH_TOKEN": start.token,
        "ANTENNA_DEFAULT_PROJECT_NAME": start.project_name,
        "ANTENNA_SERVICE_NAME": "minimal worker",
        "WORKER_POLL_INTERVAL_SECONDS": "0.5",
        "WORKER_BATCH_SIZE": "4",
        "WORKER_REQUEST_TIMEOUT_SECONDS": "30",
    }


CLIENTS = (
    Client(
        name="data companion",
        variable="ADC_SOURCE",
        version="RolnickLab/ami-data-companion a33746a2",
        needs="trapdata/antenna/worker.py",
        slug="panama_moths_2024",
        command=lambda start: [
            *(sys.executable, "-m", "tests.contract.data_companion"),
            *("panama_moths_2024", str(start.project)),
        ],
        environment=lambda start: {
            "AMI_ANTENNA_API_BASE_URL": f"{start.url}/api/v2",
            "AMI_ANTENNA_API_AUTH_TOKEN": start.token,
            "AMI_ANTENNA_API_BATCH_SIZE": "4",
            "AMI_NUM_WORKERS": "0",
        },
    ),
    Client(
        name="minimal worker",
        variable="ANTENNA_SOURCE",
        version="RolnickLab/antenna, PR #1252 (refs/pull/1252/head)",
        needs=f"{MINIMAL}/worker_main.py",
        slug="constant",
        before=lambda start: [sys.executable, str(start.checkout / MINIMAL / "register.py")],
        command=lambda start: [sys.executable, str(start.checkout / MINIMAL / "worker_main.py")],
        environment=_worker,
        sources=(MINIMAL,),
        leaves=Path("/tmp/antenna_auth_header"),  # noqa: S108 - its choice
    ),
    Client(
        name="minimal push service",
        variable="ANTENNA_SOURCE",
        version="RolnickLab/antenna 731cc2a2",
        needs=f"{MINIMAL}/api/api.py",
        slug="random-detection-random-species",
        command=lambda start: [
            *(sys.executable, "-m", "uvicorn", "api.api:app", "--host", "127.0.0.1", "--port", str(start.port)),
        ],
        environment=lambda start: {},
        sources=(MINIMAL,),
        pushes=True,
    ),
)
