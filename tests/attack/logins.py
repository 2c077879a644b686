"""Password guessing at both login forms: how many guesses are checked."""

import secrets
import time
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
#: Maximum checked guesses per minute: one address and account; one address, any account; any address, one account.
MOST_PER_PAIR, MOST_PER_ADDRESS, MOST_PER_ACCOUNT = 10, 30, 100
#: Guesses from many addresses at one account, and from one address at many accounts.
MANY, MANY_SHORT = (150, 150), (120, 40)
WINDOW_SECONDS = 60
ANYBODY = Role("anonymous")


def attack(client: Client, report: Report, *, short: bool) -> None:
    """Guess at both forms: at one account, from many addresses, and at many accounts from one address."""
    addresses, accounts = MANY_SHORT if short else MANY
    for name, entrance in (("API", guess_api), ("admin", guess_admin)):
        _one_account(client, report, name, entrance)
        _many_addresses(client, report, name, entrance, addresses)
        _one_address(client, report, name, entrance, accounts)
    _invented_addresses(client, report)
    cache.clear()  # Reset the limits for later tests.


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


def _burst(report: Report, what: str, guesses: list[Callable[[], bool]], most: int) -> None:
    """Send guesses concurrently and check how many were evaluated; a slow machine may need several windows."""
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        checked = sum(pool.map(lambda guess: guess(), guesses))
    windows = 1 + int((time.monotonic() - began) // WINDOW_SECONDS)
    sent = len(guesses)
    report.note(f"logins: {what}: {checked} of {sent} passwords were checked (at most {most * windows})")
    if checked > most * windows:
        report.found(PART, "leaks", f"{what}: more than {most} passwords are checked", f"{checked} of {sent}")


def _one_account(client: Client, report: Report, name: str, entrance: Entrance) -> None:
    """Sixty concurrent guesses at one account from one address; then the right password is not checked either."""
    email, address = _person(), client.address()
    wrong = [lambda: entrance(client, email, address, "wrong")] * AT_ONCE
    began = time.monotonic()
    _burst(report, f"{name}, one account, {AT_ONCE} at once", wrong, MOST_PER_PAIR)
    gets_in = entrance(client, email, address, PASSWORD)
    if gets_in and time.monotonic() - began < WINDOW_SECONDS:
        report.found(PART, "leaks", f"{name}: the right password gets in after the limit", f"{AT_ONCE} wrong ones")


def _many_addresses(client: Client, report: Report, name: str, entrance: Entrance, count: int) -> None:
    """Guess at one account, each guess from a new address and with another spelling."""
    email = _person()
    spelled = [email.upper() if index % 2 else f" {email}" for index in range(count)]
    guesses = [lambda text=text: entrance(client, text, client.address(), "wrong") for text in spelled]
    _burst(report, f"{name}, one account from {count} addresses", guesses, MOST_PER_ACCOUNT)


def _one_address(client: Client, report: Report, name: str, entrance: Entrance, count: int) -> None:
    """Guess at many accounts from one address."""
    address = client.address()
    emails = [f"unknown-{secrets.token_hex(4)}@example.org" for _ in range(count)]
    guesses = [lambda email=email: entrance(client, email, address, "wrong") for email in emails]
    _burst(report, f"{name}, {count} accounts from one address", guesses, MOST_PER_ADDRESS)


def _invented_addresses(client: Client, report: Report) -> None:
    """Forge addresses before the proxy's own in X-Forwarded-For: they must be ignored."""
    email, address = _person(), client.address()
    forged = [f"203.0.113.{index}, {address}" for index in range(AT_ONCE)]
    guesses = [lambda text=text: guess_api(client, email, text) for text in forged]
    _burst(report, "API, one account, invented addresses", guesses, MOST_PER_PAIR)
