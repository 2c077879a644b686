"""Pipelines and processing services in the API."""
