"""Writes an export in resumable slices: parts of some rows each, joined at the end."""

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO
from uuid import uuid4

from django.core.files import File
from django.core.files.storage import default_storage
from django.db import IntegrityError, transaction
from django.db.models import F, Max, QuerySet, Sum
from django.utils import timezone

from ami.exports.models import DataExport, ExportPart
from ami.exports.services.filters import occurrences_of
from ami.exports.services.formats import Format, format_of
from ami.jobs.services.job_kinds import SliceOfWork
from ami.main.services.stored_files import EXPORTS
from ami.queues import fence

BATCH = 1_000
PART_ROWS = 10_000
COPY_BYTES = 1024**2


def advance(export: DataExport, turn: SliceOfWork) -> bool:
    """Write the next parts until the slice is over, finally the file; return whether the export is finished.

    Safe for concurrent workers and after a crash at any line: a part is used once, by its row.
    """
    # Reloaded before each part: another worker may have finished it, a user may have restarted it.
    while _is_unfinished(export):
        if export.upto_pk is None:
            _begin(export)
        elif _last_pk(export) < export.upto_pk:
            _write_part(export, turn)
        else:
            _join_parts(export)
            continue
        if turn.over():
            return False
    return True


def written_rows(export: DataExport) -> int:
    """Return how many rows this run has written so far."""
    return _parts(export).aggregate(rows=Sum("rows"))["rows"] or 0


def restart(export: DataExport) -> None:
    """Make the next slice start over; the current file stays until the new one is complete."""
    with transaction.atomic():
        export.parts.all().delete()
        DataExport.objects.filter(pk=export.pk).update(
            run=F("run") + 1, upto_pk=None, finished_at=None, advanced_at=None, record_count=None
        )
    export.refresh_from_db()


def delete_files(paths: list[str]) -> None:
    """Delete files from the default storage; missing ones are ignored."""
    for path in paths:
        with suppress(FileNotFoundError):
            default_storage.delete(path)


def _is_unfinished(export: DataExport) -> bool:
    try:
        export.refresh_from_db()
    except DataExport.DoesNotExist:
        return False
    return export.finished_at is None


def _begin(export: DataExport) -> None:
    """Fix the last row and count the records; this is too slow for the request that creates the export."""
    occurrences = occurrences_of(export)
    upto = occurrences.order_by().aggregate(last=Max("pk"))["last"] or 0
    number = occurrences.filter(pk__lte=upto).count()
    same_run = DataExport.objects.filter(pk=export.pk, run=export.run, upto_pk=None)
    same_run.update(upto_pk=upto, record_count=number, advanced_at=timezone.now())
    export.refresh_from_db()


def _parts(export: DataExport) -> "QuerySet[ExportPart]":
    return ExportPart.objects.filter(export_id=export.pk, run=export.run)


def _last_pk(export: DataExport) -> int:
    return _parts(export).aggregate(last=Max("last_pk"))["last"] or 0


def _write_part(export: DataExport, turn: SliceOfWork) -> None:
    """Write and record the next part: at most ``PART_ROWS`` rows, fewer when the slice is over."""
    written = format_of(export.format)
    after_pk = _last_pk(export)
    with tempfile.TemporaryFile() as part:
        last_pk, rows = _write_rows(export, written, after_pk, part, turn)
        part.seek(0)
        # A unique name: with the same name of two workers a storage may overwrite or rename the file.
        path = default_storage.save(f"{EXPORTS}/parts/{export.pk}/{after_pk}-{uuid4().hex}.part", File(part))
    row = ExportPart(export=export, run=export.run, after_pk=after_pk, last_pk=last_pk, rows=rows, path=path)
    if not _record_part(row):
        delete_files([path])
    DataExport.objects.filter(pk=export.pk, run=export.run).update(advanced_at=timezone.now())


def _record_part(part: ExportPart) -> bool:
    """Insert the row of the part; False when another worker has, or the export was deleted."""
    try:
        with transaction.atomic():
            fence.check()
            part.save(force_insert=True)
    except IntegrityError:
        return False
    return True


def _write_rows(
    export: DataExport, written: Format, after_pk: int, part: IO[bytes], turn: SliceOfWork
) -> tuple[int, int]:
    """Write batches into ``part``; return the key of the last occurrence covered and the number of rows."""
    upto, last_pk, rows = export.upto_pk or 0, after_pk, 0
    while last_pk < upto and rows < PART_ROWS:
        following = occurrences_of(export).filter(pk__gt=last_pk, pk__lte=upto)
        batch = written.batch(following, BATCH)
        if not batch.rows:
            return upto, rows
        part.write((written.between if rows else b"") + batch.content)
        last_pk, rows = batch.last_pk, rows + batch.rows
        if turn.over():
            break
    return last_pk, rows


def _join_parts(export: DataExport) -> None:
    """Join head, parts and tail into the final file; exactly one of several workers publishes it."""
    written, parts = format_of(export.format), list(_parts(export))
    with tempfile.TemporaryFile() as whole, _unless_finished(export):
        whole.write(written.head())
        for index, part in enumerate(part for part in parts if part.rows):
            whole.write(written.between if index else b"")
            _copy(part.path, whole)
        whole.write(written.tail())
        size = whole.tell()
        whole.seek(0)
        _publish(export, written, whole, size, parts)


@contextmanager
def _unless_finished(export: DataExport) -> Iterator[None]:
    """Ignore a missing part if another worker has finished the export or it was restarted."""
    try:
        yield
    except FileNotFoundError:
        if DataExport.objects.filter(pk=export.pk, run=export.run, finished_at=None).exists():
            raise


def _copy(path: str, whole: IO[bytes]) -> None:
    with default_storage.open(path) as part:
        shutil.copyfileobj(part, whole, COPY_BYTES)


def _publish(export: DataExport, written: Format, whole: IO[bytes], size: int, parts: list[ExportPart]) -> None:
    path = default_storage.save(_name(export, written), File(whole))
    is_published = False
    try:
        is_published = _replace(export, path, size, parts)
    finally:
        if not is_published:
            delete_files([path])
    export.refresh_from_db()


def _name(export: DataExport, written: Format) -> str:
    """Return a new, unguessable name, so that the current file stays complete until it is replaced."""
    return f"{EXPORTS}/{export.project.slug}_export-{export.pk}-{secrets.token_hex(16)}.{written.extension}"


def _replace(export: DataExport, path: str, size: int, parts: list[ExportPart]) -> bool:
    """Make ``path`` the export's file; False if another worker has finished it or it was restarted."""
    with transaction.atomic():
        fence.check()
        current = DataExport.objects.select_for_update(of=("self",)).get(pk=export.pk)
        if current.run != export.run or current.finished_at:
            return False
        replaced = [current.file_path] if current.file_path else []
        current.file_path, current.file_size = path, size
        current.record_count, current.finished_at = sum(part.rows for part in parts), timezone.now()
        current.save(update_fields=["file_path", "file_size", "record_count", "finished_at"])
        # The rows of the parts stay: a concurrent worker must see that everything is written.
        obsolete = [*replaced, *(part.path for part in parts)]
        transaction.on_commit(lambda: delete_files(obsolete), robust=True)
    return True
