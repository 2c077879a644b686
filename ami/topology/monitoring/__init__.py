"""What Prometheus gets: the metrics by name, the alert rules and the dashboard, rendered from the table."""
