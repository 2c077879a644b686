"""`manage.py queues top`: the overview in a terminal, with keys for pause, resume and replay."""
