"""What gunicorn asks of each request before the application sees it (`--config python:config.web_server`)."""

from typing import Any

from ami.main.request_body import DRAIN_BYTES


def pre_request(_: Any, request: Any) -> None:
    """Announce the end of the connection after a body that is too large to be thrown away when it is refused.

    Without the announcement a client would send its next request into a connection that is being closed.
    """
    headers = dict(request.headers)
    length = headers.get("CONTENT-LENGTH", "0")
    if not length.isdecimal() or int(length[:20]) > DRAIN_BYTES or "TRANSFER-ENCODING" in headers:
        request.force_close()
