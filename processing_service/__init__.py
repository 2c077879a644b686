"""The reference processing service: finds insects on pictures of a lit sheet and names them by size and colour."""
