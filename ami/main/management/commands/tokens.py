"""``manage.py tokens``: the operator's way to make, list and revoke tokens of the API."""

import json
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from ami.main.models import ApiToken, Project, User
from ami.main.services import tokens
from ami.queues import audit_log

LONGEST_DAYS = 36_500


class Command(BaseCommand):
    """Makes, lists and revokes tokens."""

    help = "Make, list and revoke tokens of the API: create, list, revoke."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add one sub-command per operation."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        create = verbs.add_parser("create", help="make a token and print its key, this once")
        create.add_argument("name", help="what the token is for")
        create.add_argument("--user", required=True, help="e-mail address of the account")
        create.add_argument("--scope", choices=ApiToken.Scope.values, default=ApiToken.Scope.WORKER)
        create.add_argument("--project", type=int, action="append", default=[], help="a worker's project; repeatable")
        create.add_argument("--expires-days", type=int, default=None, help="days until it expires; default: never")
        listing = verbs.add_parser("list", help="list live tokens, without their keys")
        listing.add_argument("--user", default=None, help="only those of this e-mail address")
        revoke = verbs.add_parser("revoke", help="make a token worthless")
        revoke.add_argument("id", type=int)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        """Run one verb."""
        getattr(self, f"_{verb}")(options)

    def _create(self, options: dict[str, Any]) -> None:
        user, scope, days = self._user(options["user"]), options["scope"], options["expires_days"]
        if days is not None and not 0 < days <= LONGEST_DAYS:
            raise CommandError(f"--expires-days is {days}; it must be from 1 to {LONGEST_DAYS}.")
        expires_at = timezone.now() + timedelta(days=days) if days else None
        projects = self._projects(user, scope, options["project"])
        token, key = tokens.issue(
            user, name=options["name"][:255], scope=scope, projects=projects, expires_at=expires_at
        )
        audit_log.record("tokens create", who=audit_log.command_user(), rows=[token, user, *projects])
        self.stdout.write(key)

    def _projects(self, user: User, scope: str, keys: list[int]) -> list[Project]:
        if (scope == ApiToken.Scope.WORKER) != bool(keys):
            raise CommandError("A worker's token needs --project; a person's reaches all projects and takes none.")
        found = list(Project.objects.visible_to(user).filter(pk__in=keys))
        if missing := sorted(set(keys) - {project.pk for project in found}):
            raise CommandError(f"{user} is no member of project {missing[0]}; add the account to it first.")
        return found

    def _list(self, options: dict[str, Any]) -> None:
        live = ApiToken.objects.live().select_related("user")
        if options["user"]:
            live = live.filter(user=self._user(options["user"]))
        for token in live:
            row = {"id": token.pk, "prefix": token.prefix, "name": token.name, "user": str(token.user)}
            row |= {"scope": token.scope, "last_used_at": token.last_used_at, "expires_at": token.expires_at}
            self.stdout.write(json.dumps(row, default=str))

    def _revoke(self, options: dict[str, Any]) -> None:
        token = ApiToken.objects.filter(pk=options["id"])
        if not token.revoke():
            raise CommandError(f"There is no live token {options['id']}; 'tokens list' shows them.")
        audit_log.record("tokens revoke", who=audit_log.command_user(), rows=list(token))
        self.stdout.write(f"Token {options['id']} is revoked.")

    def _user(self, email: str) -> User:
        user = User.objects.filter(email__iexact=email).first()
        if user is None:
            raise CommandError(f"No person has the e-mail address '{email}'.")
        return user
