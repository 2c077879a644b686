"""What tests of the transports share."""
