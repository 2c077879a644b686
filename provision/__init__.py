"""Finds or starts the services that a command needs (RabbitMQ, Redis, PostgreSQL, NATS), and stops what it started."""
