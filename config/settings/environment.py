"""The environment of this process, read once; a wrong one stops it with a sentence for each variable."""

import os
from pathlib import Path
from typing import NoReturn

from ami.environment.errors import EnvironmentRefused
from config.schema.environment import load

BASE_DIR = Path(__file__).resolve().parent.parent.parent


def refuse(*sentences: str) -> NoReturn:
    """Stop the process before it does anything, with the setting, what is wrong, and the remedy."""
    raise SystemExit("\n".join(f"Configuration refused: {sentence}" for sentence in sentences))


try:
    values = load(os.environ)
except EnvironmentRefused as error:
    refuse(*error.sentences)
