"""The roles of the attack, their users and their logins."""

import secrets
from dataclasses import dataclass
from typing import Any

import httpx
from django.conf import settings
from django.contrib.auth.models import Permission
from django.test import Client as Browser

from ami.main.models import User
from tests.attack.client import TIMEOUT, Role
from tests.attack.scenes import PASSWORD, Scene, new_scene
from tests.attack.stage import Stage

CSRF = "c" * 32


@dataclass
class People:
    """The attackers: ``scenes`` has each role's project; only its owner has access to ``victim``.

    ``scoped``: the role ``worker`` has a token of the worker scope.
    """

    victim: Scene
    scenes: dict[str, Scene]
    api: dict[str, Role]
    admin: dict[str, Role]
    secrets: list[str]
    scoped: bool = False


def create_people(stage: Stage) -> People:
    """Create the projects and the users, and log all of them in."""
    victim = new_scene("victim")
    names = ("owner", "member", "worker", "superuser")
    scenes = {name: new_scene(name) for name in names}
    scenes |= {"anonymous": scenes["owner"], "outsider": scenes["owner"], "staff": scenes["owner"]}
    scenes |= {"disabled": scenes["owner"]}
    people = _people(scenes)
    tokens = {name: log_in(stage.web.url, user.email) for name, user in people.items() if user.is_active}
    User.objects.filter(pk=people["disabled"].pk).update(is_active=False)
    everybody = {scene.marker for scene in scenes.values()} | {victim.marker}
    api = {name: _api_role(name, tokens.get(name), everybody, scenes) for name in ("anonymous", *tokens)}
    if (token := worker_token(stage.web.url, tokens["worker"], scenes["worker"])) is not None:
        tokens["worker"] = token
        api["worker"] = _api_role("worker", token, everybody, scenes)
    admin = {name: _admin_role(name, people[name], everybody) for name in ("owner", "staff", "superuser")}
    clerk = User.objects.create_user(f"clerk-{secrets.token_hex(3)}@example.org", PASSWORD, is_staff=True)
    admin["clerk"] = _admin_role("clerk", clerk, everybody)
    admin["anonymous"] = Role("anonymous", hidden=tuple(sorted(everybody)))
    return People(victim, scenes, api, admin, _secrets([victim, *scenes.values()], tokens), token is not None)


def _people(scenes: dict[str, Scene]) -> dict[str, User]:
    def person(name: str, **fields: Any) -> User:
        return User.objects.create_user(f"{name}-{secrets.token_hex(3)}@example.org", PASSWORD, **fields)

    staff, member = person("staff", is_staff=True), person("member")
    staff.user_permissions.add(*Permission.objects.filter(codename__startswith="view_"))
    scenes["member"].side.world.project.members.add(member)
    superuser = scenes["superuser"].owner
    User.objects.filter(pk=superuser.pk).update(is_superuser=True, is_staff=True)
    return {
        "outsider": person("outsider"),
        "disabled": person("disabled"),
        "member": member,
        "owner": scenes["owner"].owner,
        "staff": staff,
        "superuser": User.objects.get(pk=superuser.pk),
        "worker": scenes["worker"].owner,
    }


def log_in(web: str, email: str) -> str:
    """Return a token from the login endpoint."""
    body = {"email": email, "password": PASSWORD}
    address = f"192.0.2.{secrets.randbelow(250)}"
    headers = {"X-Forwarded-For": address}
    answer = httpx.post(f"{web}/api/v2/auth/token/login/", json=body, headers=headers, timeout=TIMEOUT, verify=False)
    if answer.status_code != 200:
        raise RuntimeError(f"The login of {email} answered {answer.status_code}: {answer.text[:200]}")
    return str(answer.json()["auth_token"])


def worker_token(web: str, person: str, scene: Scene) -> str | None:
    """Return a token of the worker scope for a scene's project, or None if there is no such scope."""
    body = {"name": "worker", "scope": "worker", "projects": [scene.side.world.project.pk]}
    headers = {"Authorization": f"Token {person}"}
    answer = httpx.post(f"{web}/api/v2/auth/tokens/", json=body, headers=headers, timeout=TIMEOUT, verify=False)
    return str(answer.json()["auth_token"]) if answer.status_code == 201 else None


def new_owner(stage: Stage, people: "People", name: str) -> tuple[Scene, Role]:
    """Create a new project and log its owner in."""
    scene = new_scene(f"{name}-{secrets.token_hex(2)}")
    hidden = {known.marker for known in people.scenes.values()} | {people.victim.marker}
    role = Role(name, {"Authorization": f"Token {log_in(stage.web.url, scene.owner.email)}"}, (), tuple(sorted(hidden)))
    return scene, role


def _api_role(name: str, token: str | None, everybody: set[str], scenes: dict[str, Scene]) -> Role:
    headers = {"Authorization": f"Token {token}"} if token else {}
    if name == "superuser":
        return Role(name, headers)
    own = {scenes[name].marker} if name in ("owner", "member", "worker") else set()
    return Role(name, headers, hidden_outside_admin=tuple(sorted(everybody - own)))


def _admin_role(name: str, user: User, everybody: set[str]) -> Role:
    browser = Browser()
    browser.force_login(user)
    cookie = f"sessionid={browser.cookies[settings.SESSION_COOKIE_NAME].value}; csrftoken={CSRF}"
    headers = {"Cookie": cookie, "X-CSRFToken": CSRF}
    return Role(name, headers, hidden=() if user.get_all_permissions() else tuple(sorted(everybody)))


def _secrets(scenes: list[Scene], tokens: dict[str, str]) -> list[str]:
    """Return the texts that no response may contain: tokens, plain and stored, hashes, keys, passwords."""
    known = [secret for scene in scenes for secret in scene.secrets] + list(tokens.values())
    known += [password.rsplit("$", 1)[-1] for password in User.objects.values_list("password", flat=True)]
    known += _stored_tokens()
    known += [settings.SECRET_KEY, *(httpx.URL(url).password for url in (settings.CELERY_BROKER_URL,))]
    return sorted({secret for secret in known if len(secret) >= 12})


def _stored_tokens() -> list[str]:
    """Return every text of the tables of tokens that is long enough to be a token or its hash."""
    from django.apps import apps

    tables = [model for model in apps.get_models() if model.__name__ in ("Token", "AuthToken", "ApiToken")]
    rows = [row for table in tables for row in table._base_manager.values_list()]
    return [text for row in rows for text in row if isinstance(text, str) and len(text) >= 32 and " " not in text]
