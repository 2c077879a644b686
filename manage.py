#!/usr/bin/env python
"""Django's command line for this project."""

import gc
import sys

if __name__ == "__main__":
    # What is imported stays: searching it for garbage is a tenth of a command's start. `config.apps` switches it on.
    gc.disable()
    from config.command_line import main

    main(sys.argv)
