"""The reference processing service: detects insects on a lit sheet and classifies them by size and colour."""
