"""Publishing: message by message and in batches."""
