"""Tokens: stored as hashes, one per sign-in; tokens in use are never deleted."""

import io
import json
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from ami.main.models import ApiToken, Project
from ami.main.services import tokens
from tests.support.product import factories

pytestmark = pytest.mark.django_db
LIST = "/api/v2/auth/tokens/"


@pytest.fixture
def person():
    return factories.user()


def answer(key, path=LIST):
    return APIClient().get(path, HTTP_AUTHORIZATION=f"Token {key}").status_code


def age(token, **columns):
    ApiToken.objects.filter(pk=token.pk).update(**{name: timezone.now() - ago for name, ago in columns.items()})


def test_key_of_40_hexadecimal_digits_is_stored_only_as_a_hash(person):
    token, key = tokens.issue(person, name="laptop")
    assert len(key) == 40
    assert int(key, 16) >= 0
    row = ApiToken.objects.values().get(pk=token.pk)
    assert key not in json.dumps(row, default=str)
    assert (row["prefix"], len(row["digest"])) == (key[:8], 64)


def test_token_costs_one_query_and_one_write_in_five_minutes(person):
    _, key = tokens.issue(person)
    counts = []
    for _ in range(3):
        with CaptureQueriesContext(connection) as asked:
            assert tokens.find(key).user == person
        counts.append(sum(query["sql"].startswith(("SELECT", "UPDATE")) for query in asked.captured_queries))
    assert counts == [2, 1, 1]
    token = ApiToken.objects.get()
    age(token, last_used_at=timedelta(minutes=6), created_at=timedelta(minutes=7))
    tokens.find(key)
    token.refresh_from_db()
    assert timezone.now() - token.last_used_at < timedelta(minutes=1)


def test_unrecorded_use_does_not_fail_the_request(person, monkeypatch):
    def refuse(*_, **__):
        raise DatabaseError("locked")

    _, key = tokens.issue(person)
    monkeypatch.setattr("django.db.models.query.QuerySet.update", refuse)
    assert tokens.find(key).user == person


@pytest.mark.parametrize("what", ["revoked", "expired", "idle", "idle since it was made", "inactive", "no key"])
def test_revoked_or_expired_token_is_a_401(person, what):
    token, key = tokens.issue(person)
    assert answer(key) == 200
    if what == "revoked":
        ApiToken.objects.revoke()
    elif what == "expired":
        age(token, expires_at=timedelta(seconds=1))
    elif what == "idle":
        age(token, last_used_at=timedelta(days=91), created_at=timedelta(days=300))
    elif what == "idle since it was made":
        age(token, created_at=timedelta(days=91))
        ApiToken.objects.update(last_used_at=None)
    elif what == "inactive":
        person.is_active = False
        person.save()
    else:
        key = token.digest
    assert answer(key) == 401


def test_workers_token_does_not_expire_by_default(person):
    token, key = tokens.issue(person, scope=tokens.Scope.WORKER, projects=[factories.project(owner=person)])
    age(token, last_used_at=timedelta(days=4000), created_at=timedelta(days=4001))
    assert tokens.find(key)
    age(token, expires_at=timedelta(seconds=1))
    assert tokens.find(key) is None


def test_new_password_ends_a_persons_tokens_and_no_workers(person):
    _, worker = tokens.issue(person, scope=tokens.Scope.WORKER, projects=[factories.project(owner=person)])
    _, key = tokens.issue(person)
    person.save()
    assert person.check_password("secret-word")
    assert tokens.find(key)
    person.set_password("another-word")
    person.save()
    assert tokens.find(key) is None
    assert tokens.find(worker)


# --- more than 200


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(tokens, "MAX_TOKENS", 5)


@pytest.mark.sqlite
def test_sign_in_over_the_maximum_deletes_least_recently_used(person, few):
    keys = [tokens.sign_in(person) for _ in range(8)]
    assert ApiToken.objects.count() == 5
    assert [tokens.find(key) is not None for key in keys] == [False] * 3 + [True] * 5


def test_workers_token_survives_many_later_sign_ins(person, few):
    worker = tokens.sign_in(person)
    for number in range(30):
        browser = tokens.sign_in(person)
        if number % 2:
            assert tokens.find(browser)
        assert tokens.find(worker), number
    late = tokens.sign_in(person)
    for _ in range(30):
        tokens.find(tokens.sign_in(person))
        assert tokens.find(late)
        assert tokens.find(worker)


@pytest.mark.sqlite
def test_workers_tokens_and_other_people_do_not_count(person, few):
    others = [tokens.sign_in(factories.user()) for _ in range(3)]
    project = factories.project(owner=person)
    workers = [tokens.issue(person, scope=tokens.Scope.WORKER, projects=[project])[1] for _ in range(6)]
    for _ in range(10):
        tokens.sign_in(person)
    assert all(tokens.find(key) for key in others + workers)


@pytest.mark.sqlite
def test_token_in_use_at_this_moment_is_not_ended(person, few, monkeypatch):
    keys = [tokens.sign_in(person) for _ in range(5)]
    revoke = type(ApiToken.objects.all()).revoke

    def used_meanwhile(rows):
        ApiToken.objects.filter(digest=tokens.digest_of(keys[0])).update(last_used_at=timezone.now())
        return revoke(rows)

    monkeypatch.setattr(type(ApiToken.objects.all()), "revoke", used_meanwhile)
    tokens.sign_in(person)
    assert tokens.find(keys[0])


@pytest.mark.sqlite
def test_idle_and_long_ended_tokens_are_purged(person):
    idle, old_worker, kept, revoked, expired = (tokens.issue(person)[0] for _ in range(5))
    age(idle, created_at=timedelta(days=91))
    ApiToken.objects.filter(pk=old_worker.pk).update(scope=tokens.Scope.WORKER)
    age(old_worker, created_at=timedelta(days=900))
    age(revoked, revoked_at=timedelta(days=31))
    age(expired, expires_at=timedelta(days=31))
    assert tokens.purge() == 3
    assert set(ApiToken.objects.all()) == {kept, old_worker}


# --- the command


def run(*argv):
    out = io.StringIO()
    call_command("tokens", *argv, stdout=out)
    return out.getvalue().strip()


def test_operator_creates_lists_and_revokes_a_workers_token(person):
    project = factories.project(owner=person)
    key = run("create", "GPU box", "--user", person.email.upper(), "--project", str(project.pk))
    token = tokens.find(key)
    assert (token.name, token.scope, list(token.projects.all())) == ("GPU box", "worker", [project])
    listed = run("list", "--user", person.email)
    assert json.loads(listed)["id"] == token.pk
    assert key not in listed
    run("revoke", str(token.pk))
    assert tokens.find(key) is None
    assert run("list") == ""


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (("create", "x", "--user", "unknown@example.org", "--project", "1"), "No account has the e-mail"),
        (("create", "x", "--user", "{person}"), "needs --project"),
        (("create", "x", "--user", "{person}", "--scope", "person", "--project", "{project}"), "needs --project"),
        (("create", "x", "--user", "{person}", "--project", "{project}"), "is not a member of project"),
        (
            ("create", "x", "--user", "{person}", "--scope", "person", "--expires-days", "0"),
            "--expires-days: '0' is not a",
        ),
        (("revoke", "7"), "There is no valid token 7"),
    ],
)
def test_command_errors_are_one_sentence(person, argv, sentence):
    project = Project.objects.create(name="another's")
    argv = [word.format(person=person.email, project=project.pk) for word in argv]
    with pytest.raises(CommandError, match=sentence):
        run(*argv)
    assert not ApiToken.objects.exists()
