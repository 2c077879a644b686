"""The jobs API: for users and for pull workers."""
