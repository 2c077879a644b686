"""Declares environment variables once, reads them, and refuses wrong ones in a sentence. The lowest layer."""
