"""The export formats; each module registers one."""

from ami.exports.services.formats import occurrences_csv, occurrences_json
from ami.exports.services.formats.registry import Format, choices, format_of

__all__ = ["Format", "choices", "format_of", "occurrences_csv", "occurrences_json"]
