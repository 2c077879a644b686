"""``python -m config.rendered``: writes the files rendered from the schema and the topology, or compares them."""

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from ami.topology import compose
from ami.topology.monitoring import alerts, dashboard
from config.rendered.compose_files import compose_file
from config.rendered.env_files import env_example, services_example
from config.rendered.settings_page import settings_page
from config.settings.environment import BASE_DIR

#: By path in the checkout.
FILES: Mapping[str, Callable[[], str]] = {
    "docker-compose.worker.yml": compose.render,
    "docker-compose.yml": partial(compose_file, "docker-compose.yml"),
    "docker-compose.cluster.yml": partial(compose_file, "docker-compose.cluster.yml"),
    "compose/monitoring/alerts.yml": alerts.render,
    "compose/monitoring/dashboard.json": dashboard.render,
    ".env.example": env_example,
    ".env.services.example": services_example,
    "docs/settings.md": settings_page,
}


def main(argv: list[str] | None = None) -> int:
    """Write every file, or with ``--check`` return 1 if one differs."""
    parser = argparse.ArgumentParser(prog="python -m config.rendered", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    check = parser.parse_args(argv).check
    differing = [path for path, render in FILES.items() if _differs(BASE_DIR / path, render())]
    for path in differing:
        if check:
            print(f"{path} is not what is rendered; run 'make render'.", file=sys.stderr)
        else:
            (BASE_DIR / path).write_text(FILES[path]())
            print(f"written: {path}")
    return int(check and bool(differing))


def _differs(path: Path, text: str) -> bool:
    return not path.exists() or path.read_text() != text


if __name__ == "__main__":
    sys.exit(main())
