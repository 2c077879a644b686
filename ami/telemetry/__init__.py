"""What is measured and shown; it listens to signals and is called by nobody."""
