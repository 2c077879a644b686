"""What follows from deleting an export: its files go too."""

from typing import Any

from django.db import transaction
from django.db.models.signals import post_delete
from django.dispatch import receiver

from ami.exports.models import DataExport, ExportPart
from ami.exports.services.writer import delete_files


@receiver(post_delete, sender=DataExport)
def delete_export_file(instance: DataExport, **_: Any) -> None:
    """Delete the file once the row is surely gone."""
    if path := instance.file_path:
        transaction.on_commit(lambda: delete_files([path]), robust=True)


@receiver(post_delete, sender=ExportPart)
def delete_part_file(instance: ExportPart, **_: Any) -> None:
    """Delete a part's file once its row is surely gone."""
    path = instance.path
    transaction.on_commit(lambda: delete_files([path]), robust=True)
