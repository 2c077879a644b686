"""What the version before left on disk; made by ``make.py`` with the code of then."""
