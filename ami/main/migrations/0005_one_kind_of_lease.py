"""Gives `Lease` the field names of other leased rows; in the database it only drops a NOT NULL."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("main", "0004_project_catalogue")]

    operations = [
        migrations.AlterField("lease", "owner", models.CharField(blank=True, db_column="owner", max_length=64)),
        migrations.RenameField("lease", "owner", "lease_owner"),
        migrations.AlterField("lease", "expires_at", models.DateTimeField(db_column="expires_at", null=True)),
        migrations.RenameField("lease", "expires_at", "lease_expires_at"),
    ]
