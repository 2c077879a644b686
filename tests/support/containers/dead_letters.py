"""What an operator sees of the letters that were given up, by the deployment's own command."""

import json
from dataclasses import dataclass
from typing import Any

from tests.support.containers.deployment import Deployment
from tests.support.containers.engine import until

COMMAND = ("python", "manage.py", "queues", "dead-letters")


@dataclass
class Letters:
    """The dead letters of one queue, of which nothing else may bury anything meanwhile."""

    deployment: Deployment
    queue: str

    def until(self, key: str, seconds: float, what: str) -> list[dict[str, Any]]:
        """Wait until there is one; return those that carry the key in their arguments."""
        until(lambda: self.of(key), seconds, what)
        return self.of(key)

    def of(self, key: str) -> list[dict[str, Any]]:
        """Those that carry the key in their arguments."""
        said = self.deployment.execute("web", *COMMAND, self.queue, "--limit", "1000", "--json")
        return [letter for letter in json.loads(said) if repr(key) in letter["arguments"]]

    def discard(self) -> None:
        """Delete them all, so that the next test begins without."""
        self.deployment.execute("web", *COMMAND, self.queue, "--discard", "--yes")
