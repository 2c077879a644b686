"""Guessing passwords at both entrances: how many guesses are checked at all."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
from django.core.cache import cache

from ami.main.models import User
from tests.attack.client import Client, Request, Role
from tests.attack.people import CSRF
from tests.attack.report import Report
from tests.attack.scenes import PASSWORD

PART = "logins"
API, ADMIN = "/api/v2/auth/token/login/", "/admin/login/"
AT_ONCE = 60
#: Guesses in a minute that may be checked: one address at one account, at any account, any address at one account.
MOST_PER_PAIR, MOST_PER_ADDRESS, MOST_PER_ACCOUNT = 10, 30, 100
MANY = 150
ANYBODY = Role("anonymous")


def attack(client: Client, report: Report) -> None:
    """Guess at both entrances: one account at once, from many addresses, and many accounts from one address."""
    for name, entrance in (("API", guess_api), ("admin", guess_admin)):
        _one_account(client, report, name, entrance)
        _many_addresses(client, report, name, entrance)
        _one_address(client, report, name, entrance)
    _invented_addresses(client, report)
    cache.clear()  # The tests that come after start from nothing.


Entrance = Callable[[Client, str, str, str], bool]


def guess_api(client: Client, email: str, address: str, password: str = "wrong") -> bool:
    """Guess once at the API; return whether the password was checked."""
    body = httpx.Request("POST", "http://x", json={"email": email, "password": password}).content
    return _checked(client, Request("POST", API, body, headers=(("X-Forwarded-For", address),)))


def guess_admin(client: Client, email: str, address: str, password: str = "wrong") -> bool:
    """Guess once at the admin's form; return whether the password was checked."""
    body = httpx.Request("POST", "http://x", data={"username": email, "password": password}).content
    headers = (("X-Forwarded-For", address), ("Cookie", f"csrftoken={CSRF}"), ("X-CSRFToken", CSRF))
    return _checked(client, Request("POST", ADMIN, body, "application/x-www-form-urlencoded", headers))


def _checked(client: Client, request: Request) -> bool:
    answer = client.send(PART, ANYBODY, request, new_address=False)
    return answer is not None and answer.status_code not in (403, 413, 429, 503)


def _person() -> str:
    email = f"target-{secrets.token_hex(4)}@example.org"
    User.objects.create_user(email, PASSWORD, is_staff=True)
    return email


def _burst(guesses: list[Callable[[], bool]]) -> int:
    """Return how many of the guesses, sent at once, were checked."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(lambda guess: guess(), guesses))


def _judge(report: Report, what: str, checked: int, most: int, sent: int) -> None:
    report.note(f"logins: {what}: {checked} of {sent} passwords were checked (at most {most})")
    if checked > most:
        report.found(PART, "leaks", f"{what}: more than {most} passwords are checked", f"{checked} of {sent}")


def _one_account(client: Client, report: Report, name: str, entrance: Entrance) -> None:
    """Sixty at once against one account from one address; then the right password from there is not checked either."""
    email, address = _person(), client.address()
    checked = _burst([lambda: entrance(client, email, address, "wrong")] * AT_ONCE)
    _judge(report, f"{name}, one account, {AT_ONCE} at once", checked, MOST_PER_PAIR, AT_ONCE)
    if entrance(client, email, address, PASSWORD):
        report.found(PART, "leaks", f"{name}: the right password gets in after the limit", f"{AT_ONCE} wrong ones")


def _many_addresses(client: Client, report: Report, name: str, entrance: Entrance) -> None:
    """Against one account, each guess from an address of its own and spelled in another way."""
    email = _person()
    spelled = [email.upper() if index % 2 else f" {email}" for index in range(MANY)]
    guesses = [lambda text=text: entrance(client, text, client.address(), "wrong") for text in spelled]
    checked = _burst(guesses)
    _judge(report, f"{name}, one account from {MANY} addresses", checked, MOST_PER_ACCOUNT, MANY)


def _one_address(client: Client, report: Report, name: str, entrance: Entrance) -> None:
    """Against many accounts from one address."""
    address = client.address()
    emails = [f"nobody-{secrets.token_hex(4)}@example.org" for _ in range(MANY)]
    checked = _burst([lambda email=email: entrance(client, email, address, "wrong") for email in emails])
    _judge(report, f"{name}, {MANY} accounts from one address", checked, MOST_PER_ADDRESS, MANY)


def _invented_addresses(client: Client, report: Report) -> None:
    """The caller writes addresses before the one that the proxy adds: they count for nothing."""
    email, address = _person(), client.address()
    forged = [f"203.0.113.{index}, {address}" for index in range(AT_ONCE)]
    checked = _burst([lambda text=text: guess_api(client, email, text) for text in forged])
    _judge(report, "API, one account, invented addresses", checked, MOST_PER_PAIR, AT_ONCE)
