"""Jobs: long work that a person asked for, its images, its log and its progress."""
