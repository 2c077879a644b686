"""Sends a notice by e-mail, through Django's mail settings."""

import smtplib
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from ami.celery.shown_time import shown_time
from ami.telemetry.alerts.receivers.errors import NotSent


def send(body: Mapping[str, Any]) -> None:
    """Send it to everybody in ANTENNA_ALERT_EMAIL, in one message.

    Raises:
        NotSent: the server does not answer, or refuses the message.
    """
    alert = body["alert"]
    subject = " ".join(f"[Antenna] {body['title']}".split())[:200]
    # Mail programs show the messages of one alert together.
    thread = "".join(char for char in f"{alert['name']}.{alert['target']}" if char.isalnum() or char in ".-_")
    headers = {"Auto-Submitted": "auto-generated", "References": f"<{thread[:200]}@alerts.antenna>"}
    message = EmailMessage(subject, _text(body), to=[*settings.ANTENNA_ALERT_EMAIL], headers=headers)
    try:
        message.connection = get_connection()
        message.send()
    except smtplib.SMTPResponseException as error:
        raise NotSent(f"the mail server answers {error.smtp_code}") from None
    except smtplib.SMTPRecipientsRefused:
        raise NotSent("the mail server refuses every recipient") from None
    except (smtplib.SMTPException, OSError) as error:
        # The texts of these may have the login.
        raise NotSent(getattr(error, "strerror", None) or type(error).__name__) from None


def _text(body: Mapping[str, Any]) -> str:
    alert = body["alert"]
    lines = [
        body["text"],
        "",
        f"Level: {alert['level']}",
        f"Since: {shown_time(alert['since'])}",
        f"Over at: {shown_time(alert['resolved_at'])}" if alert["resolved_at"] else "",
        f"Remedy: {body.get('remedy', 'docs/operations.md, what the live check finds')}",
    ]
    return "\n".join(line for number, line in enumerate(lines) if line or number == 1) + "\n"
