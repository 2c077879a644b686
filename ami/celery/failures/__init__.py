"""Why a try of a task failed: recorded where it failed, written to the database by the worker's background thread.

``record`` is what is kept of a failure, ``spool`` the bounded folder in which a record waits for the database,
``in_child`` listens where the task runs, and ``in_parent`` notes what a child cannot tell: a time limit, a lost
process, its memory.
"""
