"""What runs and what waits, at one moment: one snapshot serves the page, `queues top`, the metrics and the alerts."""
