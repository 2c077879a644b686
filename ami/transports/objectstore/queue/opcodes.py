"""The opcodes of a journal's lines, as they are on disk."""

ENQUEUE = "+"
CLAIM = "?"
TAKE = "t"
ACK = "-"
RETURN = "<"
BURY = "!"
RENEW = "~"
RENEW_ALL = "*"
RESCUE = "^"
PURGE = "0"
SWEEP = "s"
CONFIGURE = "="

#: Written by a store itself: a message's bytes were appended again; a power failure may have lost the last batches.
MOVED = "m"
POWER_FAILURE = "d"
