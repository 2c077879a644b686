"""Who is alerted of a finding that lasts, and how."""

from re import compile as pattern
from typing import Annotated

from pydantic import AfterValidator

from ami.environment.declaration import Names, Variables, variable

ADDRESS = pattern(r"[^@\s,;<>\"]{1,64}@[^@\s,;<>\"]{1,190}")


def _addresses(entries: tuple[str, ...]) -> tuple[str, ...]:
    for entry in entries:
        if not ADDRESS.fullmatch(entry):
            raise ValueError(f"has the entry '{entry}', which is not an e-mail address; write it like ops@example.org.")
    return entries


class Alerts(Variables):
    """Alerts"""

    antenna_alert_webhook_url: str = variable(
        "",
        "Where alerts are posted as JSON; empty: nowhere. Without it and ANTENNA_ALERT_EMAIL nothing is evaluated.",
        secret=True,
        example="https://hooks.example.org/antenna",
        schemes=("http", "https"),
    )
    antenna_alert_webhook_secret: str = variable(
        "", "Signs each post with HMAC-SHA256, in the header X-Antenna-Signature; empty: not signed.", secret=True
    )
    antenna_alert_email: Annotated[Names, AfterValidator(_addresses)] = variable(
        (), "Who gets alerts by e-mail, separated by commas; needs EMAIL_URL.", example="ops@example.org"
    )
    email_url: str = variable(
        "",
        "The mail server; smtp+tls for STARTTLS, smtp+ssl for TLS from the start. Special characters of the password "
        "are percent-encoded.",
        secret=True,
        example="smtp+tls://antenna:PASSWORD@mail.example.org:587",
        schemes=("smtp", "smtp+tls", "smtp+ssl"),
    )
    antenna_email_from: str = variable("antenna@localhost", "The sender of e-mails.")
    antenna_alert_interval_seconds: int = variable(
        60, "Seconds between two looks for what is wrong; each asks every worker.", low=1, high=300
    )
    antenna_alert_duration_factor: float = variable(
        1.0,
        "Multiplies how long each finding lasts before it is an alert, and is gone before that is over; 0: at once.",
        low=0,
        high=100,
    )
    antenna_alert_repeat_seconds: int = variable(
        14_400, "Seconds after which an alert that still fires is sent again; 0: never.", low=0, high=604_800
    )
