"""Jobs in the API: for people, and for the pull workers of the processing services."""
