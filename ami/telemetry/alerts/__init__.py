"""Alerts: a live finding that lasts is sent to a webhook and by e-mail, again after a while, and when it is over.

``rules`` says how long each finding lasts before it is one, ``policy`` what follows from a look, without clock or
database; ``store`` keeps it, ``evaluator`` looks, under the sampler's lease; ``delivery`` sends what waits to the
``receivers``; ``receiver_findings`` says which of them fails.
"""
