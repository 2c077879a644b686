"""``manage.py tokens``: create, list and revoke API tokens."""

import json
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from ami.main.models import ApiToken, Project, User
from ami.main.services import tokens
from ami.queues import audit_log
from ami.queues.management.argument_types import positive

LONGEST_DAYS = 36_500


class Command(BaseCommand):
    """Creates, lists and revokes API tokens."""

    help = "Create, list and revoke API tokens."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        create = verbs.add_parser("create", help="create a token and print its key; it cannot be shown again")
        create.add_argument("name", help="purpose of the token")
        create.add_argument("--user", required=True, help="e-mail address of the account")
        create.add_argument("--scope", choices=ApiToken.Scope.values, default=ApiToken.Scope.WORKER)
        create.add_argument(
            "--project", type=positive, action="append", default=[], help="project of a worker's token; repeatable"
        )
        create.add_argument("--expires-days", type=positive, default=None, help="days until it expires; default: never")
        listing = verbs.add_parser("list", help="list valid tokens, without their keys")
        listing.add_argument("--user", default=None, help="only tokens of this account (e-mail address)")
        revoke = verbs.add_parser("revoke", help="revoke a token")
        revoke.add_argument("id", type=positive)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
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
            raise CommandError(
                "A worker's token needs --project; a person's token covers all their projects and takes none."
            )
        projects = list(Project.objects.visible_to(user).filter(pk__in=keys))
        if missing := sorted(set(keys) - {project.pk for project in projects}):
            raise CommandError(f"{user} is not a member of project {missing[0]}; add the account to it first.")
        return projects

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
            raise CommandError(f"There is no valid token {options['id']}; 'tokens list' shows the valid ones.")
        audit_log.record("tokens revoke", who=audit_log.command_user(), rows=list(token))
        self.stdout.write(f"Token {options['id']} revoked.")

    def _user(self, email: str) -> User:
        user = User.objects.filter(email__iexact=email).first()
        if user is None:
            raise CommandError(
                f"No account has the e-mail address '{email}'; create it at /admin/ or by 'manage.py createsuperuser'."
            )
        return user
