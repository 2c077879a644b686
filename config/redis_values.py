"""How the cache's values lie in Redis: as JSON. Reading a pickle runs what whoever wrote it put there."""

import json
from typing import Any


class JsonValues:
    """A serializer of Django's cache in Redis. A number stays one, which Redis can count."""

    def dumps(self, value: Any) -> str:
        return json.dumps(value, allow_nan=False)

    def loads(self, text: bytes) -> Any:
        return json.loads(text)
