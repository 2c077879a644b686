"""Every page of the admin, for two users: it opens, shows no secret, and complies with its security policy."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from django.contrib.auth.models import Permission
from django.db import transaction
from django.test import Client
from django.urls import reverse

from ami.main.models import User
from tests.support.product import factories
from tests.support.product.admin_pages import MODELS, address, one_list_of_apps
from tests.support.product.page_policy import PAGE, Inline, policy_of
from tests.support.product.secret_rows import seed

pytestmark = pytest.mark.django_db
AUTOCOMPLETED = ("main.Deployment.data_source", "main.Project.owner")


@dataclass
class Walk:
    """The responses to one user by model and page, and the secrets that none may show."""

    hidden: list[str]
    answers: dict[tuple[str, str], object] = field(default_factory=dict)

    def secrets(self) -> list[tuple[tuple[str, str], str]]:
        """Return the pages that show a secret, with its first characters."""
        texts = {name: answer.content.decode() for name, answer in self.answers.items()}
        return [(name, secret[:12]) for name, text in texts.items() for secret in self.hidden if secret in text]

    def opened(self) -> int:
        """Return the number of model pages that opened."""
        return sum(answer.status_code == 200 for (label, _), answer in self.answers.items() if label)


def superuser() -> User:
    return factories.user(is_staff=True, is_superuser=True)


def reader() -> User:
    person = factories.user(is_staff=True)
    person.user_permissions.add(*Permission.objects.filter(codename__startswith="view_"))
    return person


def pages(client: Client, model, *, forms: bool) -> Iterator[tuple[str, object]]:
    """Yield name and response of each page of a model; with ``forms`` also the add forms."""
    row = model._default_manager.first()
    assert row is not None, model
    rows = address(model, "changelist")
    yield "list", client.get(rows)
    yield "search", client.get(rows, {"q": "a"})
    for page in ("change", "history", "delete"):
        yield page, client.get(address(model, page, row.pk))
    yield "delete many", client.post(rows, {"action": "delete_selected", "_selected_action": [row.pk]})
    if forms:
        yield "search for a key", client.get(rows, {"q": "1"})
        yield "add", client.get(address(model, "add"))
        yield "with errors", client.post(address(model, "add"), {"_save": "1"})


def walk(client: Client, hidden: list[str], *, forms: bool) -> Walk:
    """Open every page of the admin."""
    done = Walk(hidden)
    # Every page has the list of apps; it is rendered with the first model's pages only.
    first, *others = MODELS
    done.answers |= {(first.__name__, name): answer for name, answer in pages(client, first, forms=forms)}
    with one_list_of_apps():
        for model in others:
            done.answers |= {(model.__name__, name): answer for name, answer in pages(client, model, forms=forms)}
    for target in AUTOCOMPLETED:
        label, name, column = target.split(".")
        query = {"term": "", "app_label": label, "model_name": name.lower(), "field_name": column}
        done.answers["", target] = client.get(reverse("admin:autocomplete"), query)
    done.answers["", "index"] = client.get(reverse("admin:index"))
    done.answers["", "password"] = client.get(reverse("admin:password_change"))
    done.answers["", "app"] = client.get(reverse("admin:app_list", args=["main"]))
    done.answers["", "login"] = Client().get(reverse("admin:login"))
    return done


@pytest.fixture(scope="module")
def walks(django_db_setup, django_db_blocker) -> dict[str, Walk]:
    """The pages shown to a superuser and to a reader; the rows are deleted afterwards."""
    done = {}
    with django_db_blocker.unblock():
        for person in (superuser, reader):
            with transaction.atomic():
                client = Client()
                client.force_login(person())
                done[person.__name__] = walk(client, seed(), forms=person is superuser)
                transaction.set_rollback(True)
    return done


def test_every_list_every_row_and_every_form_opens(walks):
    kinds = ("list", "search", "search for a key", "change", "history", "delete", "add")
    answers = {name: answer for name, answer in walks["superuser"].answers.items() if name[1] in kinds}
    assert len(answers) == len(kinds) * len(MODELS)
    closed = {name: answer.status_code for name, answer in answers.items() if answer.status_code != 200}
    assert {name: code for name, code in closed.items() if name[1] not in ("add", "delete") or code != 403} == {}


@pytest.mark.parametrize("person", ["superuser", "reader"])
def test_no_page_shows_a_secret(walks, person):
    assert walks[person].secrets() == []
    assert walks[person].opened() > 3 * len(MODELS)


def test_no_page_of_the_admin_needs_what_its_policy_forbids(walks):
    broken, seen = {}, 0
    for name, answer in walks["superuser"].answers.items():
        html = answer.headers.get("Content-Type", "").startswith("text/html")
        if answer.status_code != 200 or not html:
            assert answer.status_code in (302, 403) or name[1] in AUTOCOMPLETED, name
            continue
        seen += 1
        parsed = Inline()
        parsed.feed(answer.content.decode())
        if parsed.found or policy_of(answer) != PAGE:
            broken[name] = parsed.found or policy_of(answer)
    assert broken == {}
    assert seen > 4 * len(MODELS)
