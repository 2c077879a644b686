"""Every path of the API, and the methods to try."""

import re

from django.urls import URLPattern, URLResolver, get_resolver

METHODS = ("get", "post", "put", "patch", "delete")


def addresses(patterns=None, prefix=""):
    """Yield every path of the web process, with `1` for each parameter."""
    for item in get_resolver().url_patterns if patterns is None else patterns:
        text = prefix + str(item.pattern).removeprefix("^").removesuffix("$").replace("\\Z", "").replace("$", "")
        if isinstance(item, URLResolver):
            yield from addresses(item.url_patterns, text)
        elif isinstance(item, URLPattern):
            text = re.sub(r"<[a-z]+:[a-z_]+>|<drf_format_suffix:format>", "1", text)
            text = re.sub(r"\(\?P<format>.*?\)/\?", "json", text)
            yield "/" + re.sub(r"\(\?P<\w+>[^)]*\)", "1", text).replace("\\.", ".").replace("?", "")


#: The page that draws the schema is as open as the schema is.
DOCUMENTATION = "/api/v2/docs/"
API = sorted({address for address in addresses() if address.startswith("/api/")} - {DOCUMENTATION})
