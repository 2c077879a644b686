"""What operators want of this worker, read from the deployment, compared with what is, and repaired.

``wanted`` computes it from the wishes, ``wish_file`` keeps them over a restart, ``reporter`` is the thread that writes
the worker's row and reads the wishes, ``process_facts`` is what the row says about the process, ``reconciler`` repairs
in the worker's loop, ``pool_size``, ``child_control`` and ``task_limits`` are what it repairs, and ``step`` wires them
into the worker.
"""
