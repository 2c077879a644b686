"""Resource-aware consumption: probes read the machine, a pure policy decides, a worker bootstep holds and releases."""
