"""What is typed, from the bytes that a terminal sends."""

import codecs

UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END = "up", "down", "page up", "page down", "home", "end"
ENTER, ESCAPE, ERASE, CLEAR, CLOSED = "enter", "escape", "erase", "clear", "closed"

SEQUENCES = {
    b"[A": UP,
    b"OA": UP,
    b"[B": DOWN,
    b"OB": DOWN,
    b"[5~": PAGE_UP,
    b"[6~": PAGE_DOWN,
    b"[H": HOME,
    b"OH": HOME,
    b"[1~": HOME,
    b"[F": END,
    b"OF": END,
    b"[4~": END,
}
CONTROLS = {"\r": ENTER, "\n": ENTER, "\x7f": ERASE, "\b": ERASE, "\x15": CLEAR, "\x04": CLOSED}
ESC = 0x1B


class KeyDecoder:
    """Turns bytes into keys: a name of this module, or one printable character. Unknown sequences are dropped."""

    def __init__(self) -> None:
        self._left = b""
        self._text = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def is_waiting(self) -> bool:
        """Whether a sequence has begun: over a slow line its end comes later, or it was the key Escape."""
        return bool(self._left)

    def keys(self, data: bytes, *, is_whole: bool = False) -> list[str]:
        """Return the keys of these bytes; with ``is_whole`` nothing follows, and a lone Escape is a key."""
        data, self._left, found = self._left + data, b"", list[str]()
        while data:
            if data[0] != ESC:
                text, data = _before_escape(data)
                found += [CONTROLS.get(each, each) for each in self._text.decode(text) if _is_key(each)]
                continue
            length = _sequence_length(data)
            if length is None and not is_whole:
                self._left = data
                return found
            sequence, data = (data[1:length], data[length:]) if length else (b"", data[1:])
            key = SEQUENCES.get(sequence, "" if sequence else ESCAPE)
            found += [key] if key else []
        return found


def _before_escape(data: bytes) -> tuple[bytes, bytes]:
    place = data.find(ESC)
    return (data, b"") if place < 0 else (data[:place], data[place:])


def _is_key(character: str) -> bool:
    return character in CONTROLS or character.isprintable()


def _sequence_length(data: bytes) -> int | None:
    """Return how many bytes the sequence at the begin has, 0 for a lone Escape, None while it is not whole."""
    if len(data) == 1:
        return None
    if data[1:2] == b"O":
        return 3 if len(data) >= 3 else None
    if data[1:2] != b"[":
        return 0
    for place in range(2, len(data)):
        if 0x40 <= data[place] <= 0x7E:
            return place + 1
    return None
