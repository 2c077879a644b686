"""The page /admin/queues/ and `manage.py queues top`: they read telemetry and call the operations of `ami.queues`."""
