"""Measurements and health: receivers of signals, which `config` connects; no layer below imports it."""
