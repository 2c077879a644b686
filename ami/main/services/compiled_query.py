"""SELECTs that Django compiles once per process: to build and compile a small one takes longer than to run it."""

from collections.abc import Callable, Sequence
from itertools import chain, count
from typing import Any

from django.db import connection
from django.db.models import QuerySet

#: Arguments that no row has; numbers above those of any key.
_FIRST_NUMBER = 2**63 - 2**20
_TEXT = "\x00argument {}"

Argument = int | str | Sequence[int] | Sequence[str]


class CompiledQuery:
    """A query by its arguments: ``build(*arguments)`` returns a ``values_list``, and `rows` its rows.

    An argument is a number, a text, or a list of either for an ``__in``. ``build`` must do nothing with an argument but
    pass it to lookups, each list to one that takes any number of values. It is called once for each length of a list,
    rounded up to a power of two.
    """

    def __init__(self, build: Callable[..., QuerySet[Any, Any]]) -> None:
        self._build = build
        self._compiled: dict[Any, _Compiled] = {}

    def rows(self, *arguments: Argument) -> list[tuple[Any, ...]]:
        """Run the query; no rows for an empty list."""
        lists = [_padded(each) if _is_list(each) else each for each in arguments]
        if any(_is_list(each) and not each for each in lists):
            return []
        shape = (connection.vendor, *(len(each) if _is_list(each) else None for each in lists))
        if (compiled := self._compiled.get(shape)) is None:
            compiled = self._compiled[shape] = _Compiled(self._build, lists)
        return compiled.rows(lists)


class _Compiled:
    """The statement for arguments of one shape."""

    def __init__(self, build: Callable[..., QuerySet[Any, Any]], arguments: list[Any]) -> None:
        numbers = count()

        def stand_in(value: Any) -> Any:
            number = next(numbers)
            return _TEXT.format(number) if isinstance(value, str) else _FIRST_NUMBER + number

        given = [[stand_in(each) for each in value] if _is_list(value) else stand_in(value) for value in arguments]
        query = build(*given).query
        compiler = query.get_compiler(connection=connection)
        self._sql, parameters = compiler.as_sql()
        places = {value: place for place, value in enumerate(_flat(given))}
        self._constants = list(parameters)
        self._places = [(at, places[value]) for at, value in enumerate(parameters) if _known(value, places)]
        if len({place for _, place in self._places}) != len(places):
            raise ValueError(f"An argument is not in the statement: {self._sql}")
        self._compiler = compiler
        self._converters = compiler.get_converters([column[0] for column in compiler.select])

    def rows(self, arguments: list[Any]) -> list[tuple[Any, ...]]:
        values = list(_flat(arguments))
        parameters = self._constants.copy()
        for at, place in self._places:
            parameters[at] = values[place]
        with connection.cursor() as cursor:
            cursor.execute(self._sql, parameters)
            found = cursor.fetchall()
        return [tuple(row) for row in self._compiler.apply_converters(found, self._converters)]


def _known(value: Any, places: dict[Any, int]) -> bool:
    return isinstance(value, (int, str)) and value in places


def _is_list(value: Any) -> bool:
    return not isinstance(value, (int, str))


def _padded(values: Any) -> list[Any]:
    """Return the values with the last one repeated, so that there are few lengths."""
    found = list(values)
    length = 1 << max(len(found) - 1, 0).bit_length()
    return found + found[-1:] * (length - len(found))


def _flat(arguments: list[Any]) -> chain[Any]:
    return chain.from_iterable(each if _is_list(each) else (each,) for each in arguments)
