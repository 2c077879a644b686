"""Where objects lie: one port, and an adapter for each kind of storage."""
