"""Large bodies at one real web process: one is read, one waits, and small requests are served."""

import socket
from contextlib import ExitStack

from ami.main.services import tokens
from benchmarks.results_memory import MIB, Stage, WebServer, request_of, web_server
from tests.support.place import until

SIZE = 40 * MIB


def stalled_post(web: WebServer, stack: ExitStack) -> socket.socket:
    """Begin to post a large body and stop after 1 MiB."""
    address, _, path = web.url.removeprefix("http://").partition("/")
    host, port = address.split(":")
    connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
    head = f"POST /{path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Token {web.token}\r\n"
    connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {SIZE}\r\n\r\n".encode())
    connection.sendall(b" " * MIB)
    return connection


def test_two_stalled_large_bodies_leave_room_for_small_ones(database_place):
    stage = Stage(database_place, 1)
    key = tokens.issue(stage.world.user)[1]
    small = request_of([stage.small])
    large = b" " * SIZE + small
    with web_server(database_place, stage.job, key, small) as web:
        with ExitStack() as stack:
            for _ in range(2):
                stalled_post(web, stack)
            refused = until(lambda: (answer := web.post(large)).status_code == 503 and answer, 60, "the gate is full")
            assert refused.headers["Retry-After"] == "30"
            for _ in range(5):
                assert web.post(small).status_code == 200
        until(lambda: web.post(large).status_code == 400, 60, "those who hung up have left the gate")
