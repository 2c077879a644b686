"""How Django writes times for people, by language."""
