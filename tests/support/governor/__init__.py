"""What tests of the governor share."""
