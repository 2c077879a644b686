"""The formats that an export may have; a module of this package registers each."""

from ami.exports.services.formats import occurrences_csv, occurrences_json
from ami.exports.services.formats.registry import Format, choices, format_of

__all__ = ["Format", "choices", "format_of", "occurrences_csv", "occurrences_json"]
