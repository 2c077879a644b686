"""What a job's tasks do with the database and NATS."""
