"""What a journal's batches and snapshots mean."""

#: A process that knows only an older meaning refuses to read on.
FORMAT = 1
