"""The Chrome DevTools Protocol over the two pipes of a browser: no port is opened, and it ends with its parent."""

import itertools
import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

CALL_SECONDS = 30.0
PIECE_BYTES = 1 << 16

Listener = Callable[[str, dict[str, Any]], None]


class Failed(AssertionError):
    """The browser refused a call, did not answer it in time, or is gone."""


class Devtools:
    """Calls and events of one browser; messages are JSON, each ended by a null byte."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._listeners: dict[str, Listener] = {}
        self._changed = threading.Condition()
        self._is_open = True
        self._thread = threading.Thread(target=self._read, name="devtools", daemon=True)
        self._thread.start()

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Return the result of a method.

        Raises:
            Failed: an error, or no answer within `CALL_SECONDS`.
        """
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self._write(json.dumps(message).encode() + b"\0")
        with self._changed:
            self._changed.wait_for(lambda: number in self._answers or not self._is_open, CALL_SECONDS)
            answer = self._answers.pop(number, None)
        if answer is None:
            raise Failed(f"The browser did not answer {method}{'' if self._is_open else ': it is gone'}.")
        if "error" in answer:
            raise Failed(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def listen(self, session: str, listener: Listener) -> None:
        """Call ``listener(method, parameters)`` for each event of a session, in the thread that reads."""
        self._listeners[session] = listener

    def close(self) -> None:
        """Close the pipes: the browser ends. Call it after the browser's end, or instead of it."""
        os.close(self._writing)
        self._thread.join(CALL_SECONDS)
        os.close(self._reading)

    def _write(self, message: bytes) -> None:
        view = memoryview(message)
        try:
            while view:
                view = view[os.write(self._writing, view) :]
        except BrokenPipeError as error:
            raise Failed("The browser is gone.") from error

    def _read(self) -> None:
        for text in self._messages():
            message = json.loads(text)
            if "id" in message:
                with self._changed:
                    self._answers[message["id"]] = message
                    self._changed.notify_all()
            elif listener := self._listeners.get(message.get("sessionId", "")):
                listener(message["method"], message["params"])
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def _messages(self) -> Iterator[bytes]:
        begun: list[bytes] = []
        while piece := os.read(self._reading, PIECE_BYTES):
            *ended, rest = piece.split(b"\0")
            for text in ended:
                yield b"".join([*begun, text])
                begun.clear()
            begun.append(rest)
