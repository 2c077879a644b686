"""Renders the compose files of the services from compose/templates: ``@{field}`` is a declared variable."""

import re

from ami.environment.declaration import variables
from config.schema.environment import declared
from config.schema.services import Services
from config.settings.environment import BASE_DIR

TEMPLATES = BASE_DIR / "compose" / "templates"

#: ``@{redis_image}`` is what Compose replaces by the variable's value or its default, ``@{redis_image.name}`` its name,
#: ``@{redis_password.file}`` the name of the variable with the path of a file.
REFERENCE = re.compile(r"@\{([a-z0-9_]+)(?:\.(name|file))?\}")


def compose_file(name: str) -> str:
    """Return the text of a compose file.

    Raises:
        KeyError: its template refers to a variable that is not declared.
    """
    known = {**declared(), **{each.name.lower(): each for each in variables(Services)}}

    def written(reference: re.Match[str]) -> str:
        return str(getattr(known[reference[1]], reference[2] or "interpolation"))

    text = REFERENCE.sub(written, (TEMPLATES / name).read_text())
    return f"# Rendered from compose/templates by `make render`; do not edit.\n{text}"
