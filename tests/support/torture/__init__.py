"""Publishers and consumers on a folder, killed at random moments while its disk fills up."""
