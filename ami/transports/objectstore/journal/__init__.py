"""The journal of one queue: batches in one order for all processes, in a folder's files or a storage's objects."""
