"""What is done with pipelines and processing services, one noun per module."""
