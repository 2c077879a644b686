"""The file of an export: its URLs and its download."""

from typing import TYPE_CHECKING

from ami.exports.models import DataExport
from ami.exports.services.formats import format_of
from ami.main.services import file_urls
from ami.main.services.stored_files import EXPORT

if TYPE_CHECKING:
    from ami.main.api.files import Download

FILE_DELETED = "The file of this export was deleted. Run the export again."


def stable_url(export: DataExport) -> str:
    """Return the URL that may be stored and shared; it needs a token of a member of the project."""
    return file_urls.stable(_address(export))


def signed_url(export: DataExport, base: str = "") -> str:
    """Return a newly signed URL, which needs no token; empty until there is a file."""
    return file_urls.signed(_address(export), file_urls.for_people(), base) if export.file_path else ""


def signed_path(export: DataExport) -> str:
    """Return the newly signed path of an export that has a file."""
    return file_urls.signed_path(_address(export), file_urls.for_people())


def download(export: DataExport) -> "Download":
    """Return the download of an export that has a file."""
    from ami.main.api.files import Download  # A worker, which needs the URLs above, does not need the API.

    extension = export.file_path.rpartition(".")[2]
    return Download(
        area=EXPORT,
        path=export.file_path,
        name=f"{export.project.slug}_export-{export.pk}.{extension}",
        content_type=_content_type(export),
        is_attachment=True,
        missing=FILE_DELETED,
    )


def _content_type(export: DataExport) -> str:
    from ami.main.api.files import ANY_BYTES

    try:
        return format_of(export.format).content_type
    except ValueError:  # The format was removed in this version.
        return ANY_BYTES


def _address(export: DataExport) -> str:
    return file_urls.address("exports", export.pk, "file")
