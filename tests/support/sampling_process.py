"""``python -m tests.support.sampling_process NAME``: a process that only takes part in the sampling, as web does."""

import signal
import sys

import django


def main(name: str) -> None:
    django.setup()
    from ami.telemetry import sampler_thread

    sampler_thread.start(name)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
