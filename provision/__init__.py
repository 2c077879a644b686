"""Gives a command the real services it needs: RabbitMQ, Redis, PostgreSQL and NATS, found or started, and
stopped again."""
