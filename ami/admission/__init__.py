"""Unique, limited, fair: who may run how much, once, and when; and the outbox beneath.

A call of a task with a policy is a row in the caller's transaction (``call_stager``). A leased dispatcher sends a
window of the rows to the broker (``dispatcher``, ``picks``), each as a run that already has its permit. The row of the
run decides what begins and what ends (``runs``); messages are hints.
"""
