"""The content security policies of pages and data, and a collector of what they forbid in a page."""

from html.parser import HTMLParser

OWN, NOTHING = "'self'", "'none'"
PAGE = {
    "default-src": NOTHING,
    **dict.fromkeys(("script-src", "style-src", "img-src", "font-src", "connect-src", "form-action"), OWN),
    **dict.fromkeys(("base-uri", "object-src", "frame-ancestors"), NOTHING),
}
DATA = {**dict.fromkeys(("default-src", "form-action", "base-uri", "frame-ancestors"), NOTHING), "sandbox": ""}


class Inline(HTMLParser):
    """Collects what the policy of pages would block."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.forms = 0

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.forms += tag == "form"
        runs = given.get("type", "text/javascript") in ("text/javascript", "module", "")
        if tag == "style" or (tag == "script" and "src" not in given and runs):
            self.found.append(f"inline <{tag}>")
        self.found += [f"{tag} {name}={value}" for name, value in attrs if name.startswith("on") or name == "style"]
        for name in ("src", "action", *(["href"] if tag in ("link", "base") else [])):
            value = given.get(name) or ""
            if tag == "base" or value.startswith(("javascript:", "data:", "//", "http:", "https:")):
                self.found.append(f"{tag} {name}={value}")


def policy_of(answer) -> dict[str, str]:
    parts = answer.headers["Content-Security-Policy"].split("; ")
    return {name: value for name, _, value in (part.partition(" ") for part in parts)}
