"""HTTPS clients believe only who can prove a name, and read the authorities once."""

import ssl

from ami.queues.certificates import trusted


def test_certificate_and_name_are_checked_by_a_context_that_is_made_once():
    assert trusted().verify_mode is ssl.CERT_REQUIRED
    assert trusted().check_hostname
    assert trusted() is trusted()
