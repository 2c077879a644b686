"""What is done with jobs, one noun per module."""
