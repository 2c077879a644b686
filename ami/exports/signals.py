"""Signal handlers that delete the files of deleted exports."""

from typing import Any

from django.db import transaction
from django.db.models.signals import post_delete
from django.dispatch import receiver

from ami.exports.models import DataExport, ExportPart


@receiver(post_delete, sender=DataExport)
def delete_export_file(instance: DataExport, **_: Any) -> None:
    # After the commit: a rolled back deletion keeps its file.
    if path := instance.file_path:
        _delete_after_commit(path)


@receiver(post_delete, sender=ExportPart)
def delete_part_file(instance: ExportPart, **_: Any) -> None:
    _delete_after_commit(instance.path)


def _delete_after_commit(path: str) -> None:
    from ami.exports.services.writer import delete_files  # Few processes write exports.

    transaction.on_commit(lambda: delete_files([path]), robust=True)
