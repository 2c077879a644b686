"""The WSGI application that the web server runs."""

import gc

from django.core.wsgi import get_wsgi_application

from config import settings_module

settings_module.choose()

application = get_wsgi_application()

# What was made until here stays as long as the process: the collector need not look at it again, so that a collection
# after a large body takes a few milliseconds (ami.main.services.request_body), and forked processes go on sharing it.
gc.collect()
gc.freeze()
