"""The worker file alone in a folder, started there as its header says: no other file, option or variable."""

import os
import shutil
from dataclasses import dataclass

from provision import dotenv
from tests.support.containers import reports
from tests.support.containers.deployment import Deployment
from tests.support.containers.engine import run
from tests.support.place import ROOT

FILE = "docker-compose.worker.yml"


@dataclass
class Alone(Deployment):
    """A project whose ``folder`` has the worker file, and what a test puts beside it."""

    def __post_init__(self) -> None:
        reports.PROJECTS.add(self.project)
        self.folder.mkdir()
        shutil.copy(ROOT / FILE, self.folder)

    def compose(self, *argv: str, timeout: float = 300, check: bool = True, **shell: str) -> str:
        """Run `docker compose` in the folder, with the variables of a shell."""
        command = ["docker", "compose", "--ansi", "never", "-p", self.project, "-f", FILE, *argv]
        environment = dotenv.engine_environment(os.environ) | shell
        return run(command, timeout=timeout, check=check, cwd=self.folder, env=environment)
