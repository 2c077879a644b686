"""No request body stays in the memory of the web process, whatever its sender and response."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from ami.main.services import tokens
from tests.support.product import factories
from tests.support.product.large_bodies import FIELDS, FILES, FORM, HOSTILE, JSON, LOGIN, objects, pieces
from tests.support.soak import soak
from tests.support.web_server import Web, web_of

KEPT_MIB = 64
CUT = 0
#: Enough for leaked bodies to exceed that.
TIMES = soak(16, 50)


@pytest.fixture
def web(database_place) -> Web:
    return web_of(database_place)


def posted(web: Web, times: int, post: Callable[[httpx.Client], httpx.Response]) -> Counter[int]:
    """Post on four concurrent connections, one per thread of the process; count the responses.

    On a busy machine web may close a connection before the whole of a refused body has come: CUT.
    """

    def status(client: httpx.Client) -> int:
        try:
            return post(client).status_code
        except httpx.TransportError:
            return CUT

    with (
        httpx.Client(base_url=web.url, timeout=60) as client,
        ThreadPoolExecutor(4) as threads,
    ):
        return Counter(threads.map(lambda _: status(client), range(times)))


def test_no_hostile_body_stays_in_the_memory_of_web(web: Web):
    signed_in = {**JSON, "Authorization": f"Token {tokens.issue(factories.user(name='Hostile'))[1]}"}
    person = {"email": "a@b.org", "password": "x"}
    posted(web, soak(100, 200), lambda client: client.post(LOGIN, json=person))
    before = web.memory_mib
    attacks: dict[str, tuple[int, Callable[[httpx.Client], httpx.Response], set[int]]] = {
        "login": (TIMES, lambda client: client.post(LOGIN, content=HOSTILE, headers=JSON), {413, 429}),
        "login, a form": (5, lambda client: client.post(LOGIN, content=FIELDS, headers=FORM), {415, 429}),
        "login, chunked": (5, lambda client: client.post(LOGIN, content=pieces(), headers=JSON), {411}),
        "admin": (5, lambda client: client.post("/admin/login/", content=FIELDS, headers=FORM), {413}),
        "admin, files": (5, lambda client: client.post("/admin/login/", content=HOSTILE, headers=FILES), {413}),
        "health": (5, lambda client: client.post("/livez", content=FIELDS, headers=FORM), {413}),
        "nowhere": (5, lambda client: client.post("/nowhere", content=FIELDS, headers=FORM), {404}),
        "no token": (5, lambda client: client.post("/api/v2/jobs/", content=HOSTILE, headers=JSON), {401}),
        "signed in": (
            TIMES,
            lambda client: client.post("/api/v2/projects/", content=objects(250 * 1024), headers=signed_in),
            {400},
        ),
        "signed in, a set": (
            soak(16, 25),
            lambda client: client.post("/api/v2/captures/collections/", content=objects(150_000), headers=signed_in),
            {400},
        ),
    }
    kept = {}
    for name, (times, post, expected) in attacks.items():
        answers = posted(web, times, post)
        assert set(answers) <= expected | {CUT}, (name, answers)
        assert set(answers) & expected, (name, answers)
        kept[name] = round(web.memory_mib - before, 1)
    print(f"{before:.0f} MiB before; kept after each attack, in MiB: {kept}")
    assert max(kept.values()) < KEPT_MIB, kept
