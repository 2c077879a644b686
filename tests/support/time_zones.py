"""Every time zone of this machine, read once: a form field of django-celery-beat builds all 600 as it is imported."""

import zoneinfo

#: `zoneinfo` itself keeps no strong reference.
ZONES = tuple(zoneinfo.ZoneInfo(name) for name in zoneinfo.available_timezones())
