"""The variables of beat."""

from ami.environment.declaration import Variables, variable


class BeatVariables(Variables):
    """Beat"""

    antenna_beat_tick_file: str = variable(
        "",
        "The file that beat touches after each tick; in containers /tmp/beat-tick, read by its health check.",
        example="/tmp/beat-tick",  # noqa: S108 - inside beat's own container
        by_image=True,
    )
    antenna_beat_patience_seconds: int = variable(
        300,
        "Seconds without a finished tick after which beat exits to be restarted; 0 disables that.",
        low=0,
        high=86_400,
    )
