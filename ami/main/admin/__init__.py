"""The admin of the core, one module per noun."""

from ami.main.admin import bookkeeping, captures, findings, people, projects, stations, taxa, tokens

__all__ = ["bookkeeping", "captures", "findings", "people", "projects", "stations", "taxa", "tokens"]
