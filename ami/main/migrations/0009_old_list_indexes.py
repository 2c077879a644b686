"""Drops the indexes that those of the lists replace."""

from django.db import migrations

from ami.main.concurrent_indexes import RemoveIndexConcurrently


class Migration(migrations.Migration):
    atomic = False

    dependencies = [('main', '0008_keys_without_own_index')]

    operations = [
        RemoveIndexConcurrently(
            model_name='occurrence',
            name='main_occurr_project_dd12bd_idx',
        ),
        RemoveIndexConcurrently(
            model_name='sourceimage',
            name='main_source_deploym_2887d6_idx',
        ),
        RemoveIndexConcurrently(
            model_name='sourceimage',
            name='main_source_event_i_ab7d5d_idx',
        ),
        RemoveIndexConcurrently(
            model_name='sourceimage',
            name='main_source_project_359f9f_idx',
        ),
    ]
