"""Operations on queues and workers: one function each; command, admin, API and periodic tasks are thin wrappers.

- ``publish``: the one module through which the product publishes.
- ``slices``, ``reserved_slot``: long work in slices, and the slot that stays free of it.
- ``queue``, ``broker_queues``: our queues, and every queue on the broker.
- ``dead_letters``, ``shovel``: list, replay and discard buried messages; move messages.
- ``rollout``: from one queue to one per workload, and back.
- ``models``: what the operations keep in the database.
- ``schedule``, ``schedule_forms``: the declared schedule in beat's tables, and its forms.
- ``ticks``: the claims of beat's ticks in the database.
- ``tasks``: every registered task with its queue and limits.
- ``checks``: system checks of tasks, routes and schedule.
- ``diagnostics``, ``governors``, ``management_api``: findings about the running deployment, and their sources.
- ``audit_log``, ``redaction``, ``certificates``: who did what; masking secrets; trusted certificates.
- ``connection_reasons``, ``broker_errors``: why a service cannot be used, why a broker operation failed, in words.
- ``admin``, ``admin_site``, ``middleware``: the admin's pages and the answers to broker failures.
- ``management/commands``: ``manage.py queues`` and ``manage.py setup``.
"""
