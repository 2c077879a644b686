"""Alerts: a live finding that lasts is sent to a webhook and by e-mail, again after a while, and when it is over.

``rules`` says how long each finding lasts before it is one, ``policy`` what follows from a look, without clock or
database; ``evaluator`` looks and writes that down, under the sampler's lease; ``delivery`` sends to each of the
``receivers`` what it has not got; ``receiver_findings`` says which of them fails.
"""
