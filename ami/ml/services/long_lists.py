"""Lists with one entry per class, kept as JSON text until they are read."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from pydantic import ValidatorFunctionWrapHandler

from ami.main.services.json_layout import NUMBERS, OBJECTS, TEXTS, UNSTORABLE, Cut, Text, cut_number, unstorable

_decoders: dict[str, msgspec.json.Decoder[list[Any]]] = {
    NUMBERS.name: msgspec.json.Decoder(list[float]),
    TEXTS.name: msgspec.json.Decoder(list[Annotated[str, msgspec.Meta(max_length=255)]]),
    OBJECTS.name: msgspec.json.Decoder(list[dict[str, Any]]),
}


class LongList(Sequence[Any]):
    """A list that is parsed again on every access; call ``read()`` once if it is needed twice."""

    def __init__(self, text: Text, cut: Cut) -> None:
        self._text, self._cut = text, cut

    def read(self) -> list[Any]:
        """Return the list.

        Raises:
            ValueError: not a list of its kind.
        """
        kind = self._cut.kind or NUMBERS
        if kind is not NUMBERS and unstorable(self._text, self._cut.start, self._cut.end) is not None:
            raise ValueError(UNSTORABLE)
        with memoryview(self._text) as view, view[self._cut.start : self._cut.end] as stretch:
            return _decoders[kind.name].decode(stretch)

    def as_json(self) -> Any:
        """Return the result of the standard library's parser, which accepts more than ``read()``."""
        with memoryview(self._text) as view:
            return json.loads(bytes(view[self._cut.start : self._cut.end]))

    def __getitem__(self, index: Any) -> Any:
        return self.read()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.read())

    def __len__(self) -> int:
        return len(self.read())


@dataclass(frozen=True)
class CutLists:
    """The pydantic context of a skeleton: the positions of its long lists; ``build`` parses them immediately."""

    text: Text
    cuts: Sequence[Cut]
    build: bool = False

    def restore(self, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        """Return the checked list that the placeholder ``value`` stands for; validate any other value.

        Raises:
            pydantic.ValidationError, ValueError: not a list of its kind.
        """
        number = cut_number(value)
        if number is None:
            return handler(value)
        long = LongList(self.text, self.cuts[number])
        try:
            built = long.read()
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # Slower, but the error names the index of the wrong entry.
            return handler(long.as_json())
        return built if self.build else long
