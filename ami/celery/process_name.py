"""The name under which a process takes part in what one of a deployment does at a time."""

import os
import socket


def name_of_this_process() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
