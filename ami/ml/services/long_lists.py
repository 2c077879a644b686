"""Lists of one number or label per class, kept as the text they came in until the list is needed."""

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
    """A list that every use of it builds again; ``read()`` it once where it is used twice."""

    def __init__(self, text: Text, cut: Cut) -> None:
        self._text, self._cut = text, cut

    def read(self) -> list[Any]:
        """Return the list.

        Raises:
            ValueError: it is no list of its kind.
        """
        kind = self._cut.kind or NUMBERS
        if kind is not NUMBERS and unstorable(self._text, self._cut.start, self._cut.end) is not None:
            raise ValueError(UNSTORABLE)
        with memoryview(self._text) as view, view[self._cut.start : self._cut.end] as stretch:
            return _decoders[kind.name].decode(stretch)

    def as_json(self) -> Any:
        """Return what the standard library's parser makes of it, odd numbers and odd texts included."""
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
    """The pydantic context of a skeleton: where its long lists are; ``build`` makes lists of them at once."""

    text: Text
    cuts: Sequence[Cut]
    build: bool = False

    def restore(self, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        """Return the list that ``value`` stands for, checked; validate what stands for none.

        Raises:
            pydantic.ValidationError, ValueError: it is no list of its kind.
        """
        number = cut_number(value)
        if number is None:
            return handler(value)
        long = LongList(self.text, self.cuts[number])
        try:
            built = long.read()
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # Slower, and with the index of the entry that is wrong.
            return handler(long.as_json())
        return built if self.build else long
