"""``python -m demo.local``: everything of Antenna on this machine for its developers."""
