"""A running Antenna's messages move into the split: none lost, each effect once."""

from tests.support.adopting.old_antenna import old_antenna
from tests.support.place import Place


def test_declare_in_the_old_virtual_host_names_the_exchange_and_the_remedy(place: Place):
    with old_antenna(place.folder, place.broker_url):
        done = place.queues("declare", check=False)
        assert done.code == 1
        assert "exchange 'antenna'" in done.error
        assert "virtual host of its own" in done.error
        assert "'manage.py queues adopt'" in done.error
        assert "drain the queue" not in done.error

        done = place.queues("rollout", check=False)
        assert (done.code, done.json["name"], done.json["may_split"]) == (1, "another application's", False)
        assert "exchange 'antenna'" in done.json["next_step"]
        assert "'manage.py queues adopt'" in done.json["next_step"]
        assert "queues declare" not in done.json["next_step"]


def test_rollout_names_a_classic_queue_in_the_place_of_ours(place: Place):
    place.queues("declare")
    with place.app.connection_for_write() as connection, connection.channel() as channel:
        channel.queue_delete("antenna")
        channel.queue_declare("antenna", durable=True, auto_delete=False)
    done = place.queues("rollout", check=False)
    assert (done.code, done.json["name"]) == (1, "another application's")
    assert "queue 'antenna'" in done.json["next_step"]
    done = place.queues("declare", check=False)
    # A queue that exists keeps what it has; only its exchange would be refused.
    assert done.code == 0
