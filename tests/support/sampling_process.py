"""``python -m tests.support.sampling_process NAME``: a process that only takes part in the sampling, as web does; at
the pace of the extra tasks' modules.
"""

import signal
import sys
from importlib import import_module

import django


def main(name: str) -> None:
    django.setup()
    from django.conf import settings

    from ami.telemetry import sampler_thread

    for module in settings.CELERY_IMPORTS:
        import_module(module)
    sampler_thread.start(name)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
