"""pytest-celery around the deployment: its broker, its results and its workers as that package addresses them."""
