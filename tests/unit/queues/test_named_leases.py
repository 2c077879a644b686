"""Leases by name: one holder, until the database's clock says that its time is over."""

import pytest
from django.db.models.functions import Now

from ami.queues import named_leases
from ami.queues.models import Lease

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def test_expired_lease_is_taken_with_its_state():
    assert named_leases.take("work", "first", -1)
    Lease.objects.update(state={"after": 7})
    assert named_leases.take("work", "second", 60)
    assert Lease.objects.get().state == {"after": 7}
    assert not named_leases.take("work", "third", 60)


def test_holder_whose_lease_was_taken_finds_it_lost():
    assert named_leases.take("work", "frozen", -1)
    assert named_leases.take("work", "second", 60)
    assert not named_leases.renew("work", "frozen", state={"after": 7})
    assert not named_leases.hold("work", "frozen")
    named_leases.release("work", "frozen")
    assert (Lease.objects.get().holder, Lease.objects.get().state) == ("second", {})


def test_released_lease_is_free_at_once():
    assert named_leases.take("work", "first", 60)
    named_leases.release("work", "first")
    assert named_leases.take("work", "second", 60)


def test_lease_is_held_within_its_block_alone():
    with named_leases.held("work") as holder:
        assert holder
        assert Lease.objects.filter(holder=holder, until__gt=Now()).exists()
        with named_leases.held("work") as another:
            assert another is None
    assert not Lease.objects.filter(until__gt=Now()).exists()


def test_holder_renews_in_one_statement(django_assert_num_queries):
    assert named_leases.take("work", "first", 60)
    with django_assert_num_queries(1):
        assert named_leases.take("work", "first", 60)
    with django_assert_num_queries(2):
        assert not named_leases.take("work", "second", 60)
