"""The admin of the core, one module per noun."""

from ami.main.admin import captures, maintenance, occurrences, projects, stations, taxa, tokens, users

__all__ = ["captures", "maintenance", "occurrences", "projects", "stations", "taxa", "tokens", "users"]
