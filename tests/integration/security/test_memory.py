"""No request leaves its body in the memory of the web process, whoever sends it and however it is answered."""

from collections.abc import Iterator

import httpx
import pytest

from tests.integration.security.web_process import Web, started

MIB = 1024**2
LOGIN = "/api/v2/auth/token/login/"
HOSTILE = b"[" + b'{"":0},' * (15 * MIB // 7 - 1) + b'{"":0}]'
KEPT_MIB = 64
TIMES = 50


@pytest.fixture
def web(database_place) -> Iterator[Web]:
    with started(database_place) as web:
        yield web


def test_hostile(web):
    with httpx.Client(base_url=web.url, timeout=60) as client:
        for _ in range(200):
            client.post(LOGIN, json={"email": "a@b.org", "password": "x"})
        before = web.memory_mib
        for _ in range(12):
            print(client.post(LOGIN, content=HOSTILE, headers={"Content-Type": "application/json"}).status_code)
            print(before, web.memory_mib)
    assert web.memory_mib - before < KEPT_MIB
