"""What pytest-celery's fixtures are replaced with: this project's containers."""
