#!/usr/bin/env python
"""Django's command line for this project."""

import sys

if __name__ == "__main__":
    from config.command_line import main

    main(sys.argv)
