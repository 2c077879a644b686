"""A mail server on loopback that keeps every message, and refuses what the test says."""

import email
import email.policy
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from typing import NamedTuple


class Mail(NamedTuple):
    """One message as it came."""

    sender: str
    recipients: list[str]
    message: EmailMessage


class Mailbox:
    """``refusal`` is the answer to each recipient where it is set, such as ``550 no such user``."""

    def __init__(self) -> None:
        self.url = ""
        self.refusal = ""
        self.mails: list[Mail] = []


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    box: Mailbox


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        self.sender, self.recipients = "", list[str]()
        self.say("220 here")
        while line := self.rfile.readline(4096).decode().strip():
            verb = line[:4].upper()
            if verb == "QUIT":
                self.say("221 bye")
                return
            self.say(self.answer(verb, line.partition("<")[2].partition(">")[0]))

    def answer(self, verb: str, address: str) -> str:
        if verb == "MAIL":
            self.sender, self.recipients = address, []
        elif verb == "RCPT":
            self.recipients.append(address)
            return self.server.box.refusal or "250 ok"
        elif verb == "DATA":
            self.say("354 go on")
            self.server.box.mails.append(Mail(self.sender, self.recipients, self.data()))
        return "250 ok"

    def data(self) -> EmailMessage:
        lines = []
        while (line := self.rfile.readline(65536)) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b"."))
        message = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        return message

    def say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@contextmanager
def mail_server() -> Iterator[Mailbox]:
    """Run a server on a free port; it speaks as much SMTP as `smtplib` needs (RFC 5321)."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.box = box = Mailbox()
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        box.url = f"smtp://127.0.0.1:{server.server_address[1]}"
        try:
            yield box
        finally:
            server.shutdown()
            thread.join(10)
