"""A deployment's web process with its people, seen through a browser."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.contrib.auth.models import Permission
from django.contrib.staticfiles.finders import get_finders

from ami.main.models import User
from tests.support.browser.chromium import Chromium
from tests.support.browser.page import Page
from tests.support.place import Place
from tests.support.web_server import Web, web_of

PASSWORD = "correct horse battery staple"  # noqa: S105
OPERATOR, VIEWER = "operator@example.org", "viewer@example.org"


def operator() -> User:
    """Add a user who may everything."""
    return _person(OPERATOR, is_superuser=True)


def viewer() -> User:
    """Add a user of the staff who may see everything and change nothing."""
    person = _person(VIEWER)
    person.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    return person


def _person(email: str, **fields: bool) -> User:
    return User.objects.create_user(email, PASSWORD, is_staff=True, **fields)


def web_at(place: Place, **environment: str) -> Web:
    """Start the web process of a place as deployed, with the static files collected."""
    collect_static(place.folder / "files/static")
    return web_of(place, ANTENNA_LOG_LEVEL="WARNING", **environment)


def collect_static(folder: Path) -> None:
    """Link every static file into a folder, as ``manage.py collectstatic --link`` does."""
    for finder in get_finders():
        for name, storage in finder.list([]):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(storage.path(name))


@contextmanager
def signed_in(chromium: Chromium, url: str, email: str) -> Iterator[Page]:
    """Give a page of somebody who has signed in through the form."""
    with chromium.visitor(url) as page:
        page.open("/admin/login/?next=/admin/queues/")
        page.fill("#id_username", email)
        page.fill("#id_password", PASSWORD)
        page.follow("input[type=submit]")
        assert page.path == "/admin/queues/", page.text("body")
        yield page
