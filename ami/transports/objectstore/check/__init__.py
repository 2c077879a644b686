"""Whether a broker's folder is whole: every queue is read, and nothing is changed."""
