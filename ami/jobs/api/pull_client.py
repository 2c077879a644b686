"""Tells pull clients apart by what a request says about them: its token, and names in ``client_info``."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from rest_framework.request import Request

from ami.main.models import ApiToken

#: Names that stay the same in all requests of a client. Versions do not tell clients apart, and counters change.
NAMES = ("hostname", "pod_name", "worker_id")


def client_of(request: Request, client_info: Mapping[str, Any]) -> str:
    """Return the client's key, at most 64 ASCII characters: the same for requests with the same token and names.

    Clients that share a token and send no names have one key. Without a token the key is the user's.
    """
    token = request.auth
    names = _names(client_info)
    owner = f"token-{token.pk}" if isinstance(token, ApiToken) else f"user-{request.user.pk}"
    return f"{owner}-{hashlib.sha256(json.dumps(names).encode()).hexdigest()[:16]}"


def has_name(client_info: Mapping[str, Any]) -> bool:
    """Whether the client says which one it is: those that do not are one client, however many they are."""
    return any(_names(client_info))


def _names(client_info: Mapping[str, Any]) -> list[str]:
    return [value[:255] if isinstance(value := client_info.get(name), str) else "" for name in NAMES]
