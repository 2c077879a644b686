"""The product's core: projects, stations, captures and occurrences."""
