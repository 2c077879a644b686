"""Every variable of this project, one module per concern: the only place that names, bounds and documents it.

Settings, `.env.example`, `.env.services.example`, docs/settings.md, the compose files and the list of secrets come from
here. The numbers of a queue are declared in `ami.topology.overrides`, the governor's in `ami.governor.settings`, and
what beat, a worker's pulse and containers read beside their code.
"""
