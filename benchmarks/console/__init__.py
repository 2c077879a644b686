"""What the console costs in a large deployment: its pages, and who watches them."""
