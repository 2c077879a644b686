"""The client address behind no proxy, one and two."""

import pytest
from django.test import RequestFactory

from ami.main.services.client_address import address_of, network_of

REQUEST = {"REMOTE_ADDR": "10.0.0.1"}


@pytest.mark.parametrize(
    ("proxies", "forwarded", "expected"),
    [
        (0, "203.0.113.9", "10.0.0.1"),
        (1, "203.0.113.9", "203.0.113.9"),
        (1, "1.2.3.4, 203.0.113.9", "203.0.113.9"),
        (1, "1.2.3.4,203.0.113.9:51234", "203.0.113.9"),
        (1, "[2001:db8::7]:443", "2001:db8::7"),
        (1, "2001:db8::7", "2001:db8::7"),
        (1, None, "10.0.0.1"),
        (1, "", "10.0.0.1"),
        (1, "203.0.113.9, unknown", "10.0.0.1"),
        (1, "x" * 5000, "10.0.0.1"),
        (1, "\x00", "10.0.0.1"),
        (2, "1.2.3.4, 203.0.113.9, 10.0.0.2", "203.0.113.9"),
        (2, "203.0.113.9", "203.0.113.9"),
    ],
)
def test_client_is_the_last_address_written_by_trusted_proxies(settings, proxies, forwarded, expected):
    settings.ANTENNA_PROXIES = proxies
    headers = {} if forwarded is None else {"HTTP_X_FORWARDED_FOR": forwarded}
    assert address_of(RequestFactory().get("/", **REQUEST, **headers)) == expected


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("", ""),
        ("unix:", "unix:"),
    ],
)
def test_ipv6_network_counts_as_one_client(address, network):
    assert network_of(address) == network
