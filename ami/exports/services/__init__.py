"""How exports are requested and written."""
