"""Pictures to try the platform with: drawn nights with known boxes, and photographs from a folder."""

import signal
import sys

# `python -m demo...` imports for seconds before its `main` handles Ctrl-C.
if sys.argv[:1] == ["-m"]:
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0 if "demo.local" in sys.orig_argv else 130))
