"""Files that are rendered from the schema and the topology, committed, and compared by `make check`."""
