"""What the core does, one noun per module."""
