"""The form of `ami.celery.shown_time` for the lists and forms of the admin."""

DATETIME_FORMAT = "Y-m-d H:i:s T"
