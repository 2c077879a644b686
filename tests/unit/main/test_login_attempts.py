"""Limits of sign-in attempts in the API and the admin, also for concurrent attempts."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.cache import cache
from django.db import connections
from django.test import Client
from rest_framework.test import APIClient

from ami.main.models import LoginAttempts
from ami.main.services import login_attempts
from tests.support.product import factories

LOGIN = "/api/v2/auth/token/login/"
VICTIM = "victim@example.org"


def by_api(email: str, address: str = "192.0.2.1", password: str = "wrong"):
    body = {"email": email, "password": password}
    return APIClient().post(LOGIN, body, format="json", REMOTE_ADDR=address)


def by_admin(email: str, address: str = "192.0.2.1", password: str = "wrong"):
    form = {"username": email, "password": password, "next": "/admin/"}
    return Client().post("/admin/login/", form, REMOTE_ADDR=address)


ENTRANCES = pytest.mark.parametrize("entrance", [by_api, by_admin])


@pytest.fixture
def checked(monkeypatch) -> list[str]:
    """The e-mail addresses whose passwords were checked."""
    from django.contrib.auth import authenticate

    found: list[str] = []

    def counting(request=None, **credentials):
        found.append(str(credentials["username"]))
        return authenticate(request, **credentials)

    monkeypatch.setattr("ami.main.api.auth.authenticate", counting)
    monkeypatch.setattr("django.contrib.auth.forms.authenticate", counting)
    return found


def together(count: int, call) -> list:
    """Make concurrent calls, each in a thread with its own database connection."""
    barrier = threading.Barrier(count)

    def one(number: int):
        barrier.wait(120)
        try:
            return call(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


@ENTRANCES
@pytest.mark.django_db(transaction=True)
def test_ten_of_sixty_parallel_attempts_check_a_password(entrance, checked):
    answers = together(60, lambda _: entrance(VICTIM))
    assert len(checked) == 10
    assert sum(answer.status_code == 429 for answer in answers) == 50


@pytest.mark.django_db(transaction=True)
@pytest.mark.sqlite
def test_parallel_attempts_are_all_counted():
    waits = together(60, lambda number: login_attempts.count_account(f"192.0.2.{number}", VICTIM))
    assert waits == [0] * 60
    assert sorted(LoginAttempts.objects.values_list("attempts", flat=True)) == [1] * 60 + [60]


@ENTRANCES
def test_eleventh_attempt_is_a_429_with_retry_after(entrance, db, checked):
    answers = [entrance(VICTIM) for _ in range(11)]
    assert answers[-1].status_code == 429
    assert 1 <= int(answers[-1]["Retry-After"]) <= 60
    assert len(checked) == 10
    assert entrance("other@example.org").status_code != 429, "another account from the same address is not limited"
    assert entrance(VICTIM, "192.0.2.9").status_code != 429, "the same account from another address is not limited"


def test_api_and_admin_attempts_count_together(db, checked):
    codes = [(by_api if number % 2 else by_admin)(VICTIM).status_code for number in range(12)]
    assert codes[10:] == [429, 429]
    assert len(checked) == 10


def test_the_admin_says_why_it_refuses(db):
    answer = [by_admin(VICTIM) for _ in range(11)][-1]
    assert "too many attempts" in answer.content.decode()
    assert "form" not in re.findall(r"<(form)[^>]*login", answer.content.decode())


@ENTRANCES
def test_many_accounts_from_one_address_are_limited_by_the_address(entrance, db, checked):
    codes = [entrance(f"person{number}@example.org").status_code for number in range(40)]
    assert codes.count(429) == 10
    assert len(checked) == 30


def test_many_addresses_against_one_account_are_limited_by_the_account(db, checked):
    for number in range(100):
        assert login_attempts.count_account(f"192.0.2.{number}", VICTIM) == 0
    assert by_api(VICTIM, "198.51.100.1").status_code == 429
    assert by_admin(VICTIM.upper(), "198.51.100.2").status_code == 429
    assert not checked
    assert by_api("other@example.org", "198.51.100.1").status_code == 400


def test_one_address_cannot_lock_an_account_for_others(db):
    for _ in range(200):
        login_attempts.count_account("192.0.2.1", VICTIM)
    assert login_attempts.count_account("198.51.100.1", VICTIM) == 0


def test_ipv6_network_is_one_client(db):
    addresses = [f"2001:db8::{number:x}" for number in range(11)]
    assert [by_api(VICTIM, address).status_code for address in addresses][-1] == 429
    assert by_api(VICTIM, "2001:db8:0:1::1").status_code == 400


@ENTRANCES
def test_sign_in_works_after_the_window(entrance, db, monkeypatch):
    person = factories.user(name="Person")
    person.is_staff = True
    person.set_password("right")
    person.save()
    for _ in range(11):
        entrance(person.email)
    assert entrance(person.email, password="right").status_code == 429
    now = login_attempts.time.time()
    monkeypatch.setattr(login_attempts.time, "time", lambda: now + 61)
    assert entrance(person.email, password="right").status_code in (200, 302)


@pytest.mark.sqlite
def test_window_ends_a_minute_after_its_first_attempt(db, monkeypatch):
    for second in (0, 30, 59):
        monkeypatch.setattr(login_attempts.time, "time", lambda second=second: 1000 + second)
        login_attempts.count_address("192.0.2.1")
    assert LoginAttempts.objects.get().ends_at == 1060
    monkeypatch.setattr(login_attempts.time, "time", lambda: 1060)
    login_attempts.count_address("192.0.2.1")
    assert LoginAttempts.objects.values_list("attempts", "ends_at").get() == (1, 1120)


def test_the_table_shows_no_address_and_no_account(db):
    by_api(VICTIM)
    stored = str(list(LoginAttempts.objects.values()))
    assert LoginAttempts.objects.count() == 3
    assert not re.search(r"victim|192\.0\.2", stored, re.IGNORECASE)


@pytest.mark.sqlite
def test_windows_that_are_over_are_purged(db, monkeypatch):
    by_api(VICTIM)
    assert login_attempts.purge() == 0
    now = login_attempts.time.time()
    monkeypatch.setattr(login_attempts.time, "time", lambda: now + 61)
    assert login_attempts.purge() == 3
    assert not LoginAttempts.objects.exists()


def test_lost_cache_does_not_affect_the_limits(db, monkeypatch, checked):
    for name in ("get", "set", "add", "incr"):
        monkeypatch.setattr(type(cache._connections["default"]), name, _unreachable, raising=False)
    codes = [by_api(VICTIM).status_code for _ in range(11)]
    assert codes == [400] * 10 + [429]


def _unreachable(*_, **__):
    raise ConnectionError("Redis is unreachable")


def test_a_429_does_not_read_the_body(db):
    class Untouched:
        def read(self, *_):
            raise AssertionError("the body was read")

        readline = read

    for _ in range(30):
        login_attempts.count_address("192.0.2.1")
    client = APIClient()
    extra = {"wsgi.input": Untouched(), "CONTENT_LENGTH": "4000", "REMOTE_ADDR": "192.0.2.1"}
    assert client.generic("POST", LOGIN, content_type="application/json", **extra).status_code == 429
