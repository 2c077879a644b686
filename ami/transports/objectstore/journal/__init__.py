"""The journal of one queue: batches in one order for everybody, in a folder's files or in any storage's objects."""
