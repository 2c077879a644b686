"""The address of web leads somewhere, under the project's name."""

import pytest
from django.test import Client

from tests.support.product import factories


@pytest.mark.django_db
def test_root_leads_to_the_admin_which_has_a_name_and_no_dead_link():
    client = Client()
    client.force_login(factories.user(is_staff=True))
    answer = client.get("/", follow=True)
    assert answer.redirect_chain == [("/admin/", 302)]
    page = answer.content.decode()
    assert "Antenna" in page
    assert "View site" not in page
    icon = client.get("/favicon.ico")
    assert (icon.status_code, icon["Content-Type"]) == (200, "image/svg+xml")
