"""Who may read the metrics, and where errors are reported."""

from ami.environment.declaration import Variables, variable


class Monitoring(Variables):
    """Monitoring"""

    antenna_metrics_token: str = variable(
        "",
        "What Prometheus sends to read web's /metrics (Authorization: Bearer); 32 random characters or more. Not set: "
        "there is no /metrics.",
        secret=True,
        example="32 random characters from secrets.token_urlsafe(32)",
    )
    sentry_dsn: str = variable(
        "",
        "Where errors of web, workers and beat are reported; not set: nowhere.",
        secret=True,
        example="https://key@sentry.example.org/1",
        schemes=("http", "https"),
    )
    sentry_environment: str = variable("production", "The name of this deployment in Sentry.")
