"""Django's SQLite backend with a file that only its owner may read."""
