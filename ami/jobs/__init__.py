"""Jobs: long work that a user or a schedule started, with its images, log and progress."""
