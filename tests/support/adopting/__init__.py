"""What the tests of `queues adopt` share: the old application and bridges that are killed."""
