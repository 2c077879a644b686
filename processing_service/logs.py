"""Logs one line per event as `time level logger event key=value`, without secrets."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any


def configure(level: str) -> None:
    """Log to standard error at `level` (a name such as INFO); `ValueError` for an unknown level."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # These log full URLs, and a picture's URL may contain a signature.
    for noisy in ("httpx", "httpcore", "PIL"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


class OneLine(logging.Formatter):
    """Writes a record, traceback included, as one line."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\n", "\\n")


def event(name: str, /, **fields: Any) -> str:
    """Return `name key=value ...`; values with spaces are quoted."""
    return " ".join([name, *(f"{key}={_value(value)}" for key, value in fields.items())])


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    return text if text and not set(text) & set(' "=\n') else json.dumps(text, ensure_ascii=False)
