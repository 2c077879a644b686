"""DATABASES from a URL."""

from config.settings.databases import databases

PLAIN = "postgres://antenna:secret@postgres:5432/antenna"


def test_postgresql_keeps_checked_connections_for_a_minute():
    made = databases(PLAIN)["default"]
    assert (made["CONN_MAX_AGE"], made["CONN_HEALTH_CHECKS"]) == (60, True)
    assert made["DISABLE_SERVER_SIDE_CURSORS"] is False


def test_pooler_is_named_in_the_url():
    made = databases(f"{PLAIN}?DISABLE_SERVER_SIDE_CURSORS=true&CONN_MAX_AGE=300")["default"]
    assert (made["CONN_MAX_AGE"], made["DISABLE_SERVER_SIDE_CURSORS"]) == (300, True)
