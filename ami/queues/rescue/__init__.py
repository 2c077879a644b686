"""Finds workers that are dead, frozen or cut off, and returns what they held.

``verdict`` is the table of what is what, ``sweep`` holds the deployment's lease and applies it; ``connections``,
``processes`` and ``backends`` end what a dead worker left behind, ``gone`` tells the product, and ``frozen_writer`` is
for a process that was frozen inside a transaction of SQLite, which blocks every writer.
"""
