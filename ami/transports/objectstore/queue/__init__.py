"""One queue: commands, the state they make, and the store that keeps them in a journal."""
