"""Issues API tokens, finds the token of a request, and purges unused ones."""

import logging
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from ami.main.models import ApiToken, Project, User
from ami.main.models.tokens import PREFIX_LENGTH, digest_of
from ami.queues import audit_log
from ami.queues.old_rows import delete_some

logger = logging.getLogger(__name__)

Scope = ApiToken.Scope

#: The maximum of tokens per user and scope; a sign-in beyond it deletes the least recently used one.
MAX_TOKENS = 200

#: The resolution of ``last_used_at``.
LAST_USED_INTERVAL = timedelta(minutes=5)

#: How long revoked and expired tokens stay listed for staff.
ENDED_RETENTION = timedelta(days=30)


def issue(
    user: User,
    *,
    name: str = "",
    scope: str = Scope.PERSON,
    projects: Iterable[Project] = (),
    expires_at: datetime | None = None,
) -> tuple[ApiToken, str]:
    """Create a token; return it and its key of 40 hexadecimal digits, which is not stored."""
    key = secrets.token_hex(20)
    with transaction.atomic():
        token = ApiToken.objects.create(
            digest=digest_of(key),
            prefix=key[:PREFIX_LENGTH],
            name=name,
            user=user,
            scope=scope,
            expires_at=expires_at,
        )
        if scope == Scope.WORKER:
            token.projects.set(projects)
    return token, key


def sign_in(user: User) -> str:
    """Return the key of a new token; beyond `MAX_TOKENS` the least recently used ones are deleted."""
    with transaction.atomic():
        token, key = issue(user, name="signed in")
        # Serialize sign-ins of one user, so that concurrent ones do not exceed the maximum.
        User.objects.select_for_update(no_key=True).get(pk=user.pk)
        _delete_least_recently_used(user, token)
    audit_log.record("sign in", who=user, rows=[token], in_history=False)
    return key


def _delete_least_recently_used(user: User, new: ApiToken) -> None:
    others = ApiToken.objects.filter(user=user, scope=Scope.PERSON, revoked_at=None).exclude(pk=new.pk)
    surplus = others.count() + 1 - MAX_TOKENS
    if surplus <= 0:
        return
    longest = others.with_last_use().order_by("used", "pk").values_list("pk", "used")[:surplus]
    keys, uses = zip(*longest, strict=True)
    # A token that was used meanwhile stays.
    still_unused = Q(last_used_at__lte=uses[-1]) | Q(last_used_at=None)
    others.filter(still_unused, pk__in=keys).revoke()
    ApiToken.objects.filter(pk__in=keys).exclude(revoked_at=None).delete()


def find(key: str) -> ApiToken | None:
    """Return the valid token with this key and record its use, else None; one query for a recently used token."""
    # After another sign-in the order of last uses decides which token is deleted, so each use is recorded.
    newer = ApiToken.objects.filter(user=OuterRef("user"), scope=Scope.PERSON, created_at__gt=OuterRef("last_used_at"))
    tokens = ApiToken.objects.select_related("user").annotate(signed_in_since=Exists(newer))
    token = tokens.filter(digest=digest_of(key)).first()
    now = timezone.now()
    if token is None or not token.is_usable(now):
        return None
    last = token.last_used_at
    if last is None or token.signed_in_since or now - last >= LAST_USED_INTERVAL:
        _record_use(token, now)
    return token


def _record_use(token: ApiToken, now: datetime) -> None:
    """Set the time of use unless a later one is stored; a database error does not fail the request."""
    try:
        with transaction.atomic():
            earlier = Q(last_used_at=None) | Q(last_used_at__lt=now)
            ApiToken.objects.filter(earlier, pk=token.pk).update(last_used_at=now)
    except DatabaseError as error:
        logger.warning("Last use of a token not recorded", extra={"reason": repr(error)})


def purge() -> int:
    """Delete the first idle tokens of persons, and tokens that ended `ENDED_RETENTION` ago; return how many."""
    now = timezone.now()
    idle = now - timedelta(days=settings.ANTENNA_TOKEN_IDLE_DAYS)
    unused = Q(last_used_at__lt=idle) | Q(last_used_at=None, created_at__lt=idle)
    ended = Q(revoked_at__lt=now - ENDED_RETENTION) | Q(expires_at__lt=now - ENDED_RETENTION)
    return delete_some(ApiToken.objects.filter(Q(unused, scope=Scope.PERSON) | ended).order_by("pk"))
