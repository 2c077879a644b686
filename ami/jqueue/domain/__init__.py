"""Jobs, the state of their queue, and what can be wrong."""
