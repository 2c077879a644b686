"""What subclasses or hooks Celery, one file per hook, in the order in which they fire.

Worker start: ``worker`` (takes from the row what the command line does not name), ``worker_command`` (what it names),
``worker_limits`` (what the row adds).

Process start: ``bootsteps`` (installed by ``config.celery_app``), ``amqp_properties``, ``control_commands``,
``decompression`` and ``pool`` (installed by ``bootsteps``), ``declaration`` (declares the topology before the first
consume or publish).

Publish: ``app`` (``send_task``: origin, delay, unknown queues),
``staged_calls`` (the port to tasks with a policy, whose calls are rows), ``origin`` (who published),
``producer`` (bounded wait for confirmations), ``bulk_publisher`` (many tasks at once), ``message_collector`` (keeps
what `apply_async` publishes), ``confirming_connection`` (publishes it to RabbitMQ with one wait).

Receive: ``message_guard`` (the worker's consumer), ``task_message`` (checks a message), ``dead_letter_publisher``
(stores what is buried).

Run: ``django_fixup`` (keeps database connections between tasks), ``database_connections`` (which may be kept), ``task``
(base class of every task), ``staged_runs`` (begins and ends the run of staged calls around it).

Settle: ``request`` (acknowledge, retry or bury), ``tracebacks`` (clears those of failed tasks), ``letter_ends`` (what
became of a dead letter that was published again).

Beside tasks: ``broker_info`` (hides the broker's password), ``events``, ``control`` (``celery inspect``) and
``control_commands`` (``celery control``) of a worker.

Beat: ``scheduler``, ``beat_entry`` (when an entry is due), ``clock``, ``claimed_ticks`` and ``tick_claims`` (of two
beats one sends a tick), ``orderly_end`` (ends it between two ticks), ``watchdog`` (ends a frozen beat).

Helpers: ``broker_kind`` (what the broker can do), ``database_times`` (times in statements that are written by hand),
``leases`` (on rows of any model), ``message_copy`` (publishes a message again), ``process_name``.
"""
