"""Gives scores and logits columns of bytes; rows keep their JSON until the maintenance task converts them in steps.

Each operation changes the catalogue of PostgreSQL only: the table is not rewritten, and earlier processes can go on.
"""

from django.db import migrations, models

import ami.main.models.float_list


def kept_json(name: str) -> list[migrations.operations.base.Operation]:
    """Name the JSON field after what it is now; its column stays."""
    renamed = [
        migrations.RenameField("classification", name, f"{name}_json"),
        migrations.AlterField(
            "classification", f"{name}_json", models.JSONField(blank=True, default=list, db_column=name)
        ),
    ]
    nullable = models.JSONField(blank=True, null=True, editable=False, db_column=name)
    return [
        migrations.SeparateDatabaseAndState(state_operations=renamed),
        migrations.AlterField("classification", f"{name}_json", nullable),
    ]


def as_bytes(name: str) -> list[migrations.operations.base.Operation]:
    """Add the column, NULL in every row, and then its default."""
    options = {"blank": True, "null": True, "db_column": f"{name}_f64", "json_field": f"{name}_json"}
    field = ami.main.models.float_list.FloatListField
    return [
        migrations.AddField("classification", name, field(**options)),
        migrations.AlterField("classification", name, field(default=list, **options)),
    ]


class Migration(migrations.Migration):
    dependencies = [("main", "0005_one_kind_of_lease")]

    operations = [*kept_json("scores"), *kept_json("logits"), *as_bytes("scores"), *as_bytes("logits")]
