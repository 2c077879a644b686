"""The formats that an export may have; a module of this package registers each."""

from ami.exports.formats import occurrences_csv, occurrences_json
from ami.exports.formats.registry import Format, choices, format_of

__all__ = ["Format", "choices", "format_of", "occurrences_csv", "occurrences_json"]
