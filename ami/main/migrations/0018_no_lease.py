"""Named leases are rows of `ami.queues`."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("main", "0017_station_time_format")]

    operations = [migrations.DeleteModel(name="Lease")]
