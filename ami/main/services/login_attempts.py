"""Limits sign-in attempts of the API and the admin; each is counted in one atomic statement."""

import logging
import time
from typing import NamedTuple

from django.db import connection
from django.utils.crypto import salted_hmac

from ami.main.models import LoginAttempts
from ami.main.services.client_address import network_of
from ami.queues.old_rows import delete_some

logger = logging.getLogger(__name__)

WINDOW_SECONDS = 60


class Limit(NamedTuple):
    """The number of attempts within `WINDOW_SECONDS` that may check a password."""

    name: str
    attempts: int


#: One address against many accounts.
ADDRESS = Limit("address", 30)

#: One address against one account, so that an attacker cannot lock the account for other addresses.
PAIR = Limit("address and account", 10)

#: Many addresses against one account. Far above what a user needs; it ends after a minute.
ACCOUNT = Limit("account", 100)

#: The window starts with the first attempt and is never extended; an attempt after its end starts the next one.
COUNT = """
    INSERT INTO {table} (digest, attempts, ends_at) VALUES (%(digest)s, 1, %(end)s)
    ON CONFLICT (digest) DO UPDATE SET
        attempts = CASE WHEN {table}.ends_at <= %(now)s THEN 1 ELSE {table}.attempts + 1 END,
        ends_at = CASE WHEN {table}.ends_at <= %(now)s THEN excluded.ends_at ELSE {table}.ends_at END
    RETURNING attempts, ends_at
"""


def count_address(address: str) -> int:
    """Count an attempt from ``address``; return the seconds to wait, 0 within the limit."""
    return _count(ADDRESS, network_of(address))


def count_account(address: str, account: str) -> int:
    """Count an attempt at ``account`` (an e-mail address); return the seconds to wait, 0 within the limits.

    An attempt over the limit of its address and account does not count against the account.
    """
    # Normalized as at sign-in: without surrounding spaces and case, including letters that only a database folds.
    name = account.strip().upper()[:254]
    return _count(PAIR, f"{network_of(address)} {name}") or _count(ACCOUNT, name)


def purge() -> int:
    """Delete the first ended windows; return how many."""
    return delete_some(LoginAttempts.objects.filter(ends_at__lte=int(time.time())).order_by("ends_at"))


def _count(limit: Limit, key: str) -> int:
    now = int(time.time())
    # A keyed hash: the table reveals no e-mail addresses.
    digest = salted_hmac(f"login {limit.name}", key, algorithm="sha256").hexdigest()
    values = {"digest": digest, "now": now, "end": now + WINDOW_SECONDS}
    table = connection.ops.quote_name(LoginAttempts._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(COUNT.format(table=table), values)
        attempts, ends_at = cursor.fetchone()
    if attempts <= limit.attempts:
        return 0
    if attempts == limit.attempts + 1:
        logger.warning("Sign-in limit reached", extra={"per": limit.name, "attempts_a_minute": limit.attempts})
    return max(1, ends_at - now)
