"""The product's core: projects, stations, captures and what was found on them."""
