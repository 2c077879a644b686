"""A page in the browser as its user has it: opened, read, clicked and typed into, with what went wrong in it."""

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.browser.devtools import Devtools, Failed

LOAD_SECONDS = 30.0
WAIT_SECONDS = 10.0
PHONE, DESK = 390, 1440
HEIGHT = 900

#: Visible elements by selector, and by text where one is given: white space as one blank, ends ignored.
FIND = """(selector, text) => [...document.querySelectorAll(selector)].filter(each => each.checkVisibility()
  && (text === null || each.textContent.replace(/\\s+/g, " ").trim() === text))"""
#: The middle of the first such element, in the window; null where there is none, or something lies above it.
MIDDLE = """(() => {
  const [found] = (%s)(%s);
  if (!found) return null;
  found.scrollIntoView({block: "center", behavior: "instant"});
  const {x, y, width, height} = found.getBoundingClientRect();
  const at = {x: x + width / 2, y: y + height / 2};
  const above = document.elementFromPoint(at.x, at.y);
  return above && (found.contains(above) || above.contains(found)) ? at : null;
})()"""
TEXTS = '(%s)(%s).map(each => (each.value ?? each.textContent).replace(/\\s+/g, " ").trim())'
WIDEST = """(() => {
  const over = each => each.getBoundingClientRect().right > window.innerWidth + 1;
  const clipped = each => { for (let at = each.parentElement; at; at = at.parentElement)
    if (getComputedStyle(at).overflowX !== "visible" && !over(at)) return true; return false; };
  return [...document.body.querySelectorAll("*")].filter(each => over(each) && !clipped(each) &&
    ![...each.children].some(over)).slice(0, 5).map(each => each.outerHTML.slice(0, 120));
})()"""
#: Every violation of the page's policy, also those that a script would swallow.
VIOLATIONS = """document.addEventListener("securitypolicyviolation", event => console.error(
  `CSP ${event.effectiveDirective} blocked ${event.blockedURI} at ${event.sourceFile}:${event.lineNumber}`))"""


class Page:
    """One tab. ``problems`` are errors of the console, exceptions, violations of the policy and failed loads."""

    def __init__(self, devtools: Devtools, session: str, url: str) -> None:
        self._devtools, self._session, self.url = devtools, session, url
        self._loads = 0
        self.problems: list[str] = []
        devtools.listen(session, self._heard)
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self._call("Page.addScriptToEvaluateOnNewDocument", source=VIOLATIONS, worldName="violations")
        self.resize(DESK)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._devtools.call(method, self._session, **parameters)

    def _heard(self, method: str, told: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loads += 1
        elif method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(each.get("value", each.get("description"))) for each in told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            entry = told["entry"]
            self.problems.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")

    def open(self, path: str) -> None:
        """Open an address of the site and return when it and what it needs are loaded."""
        self._loaded(lambda: self._call("Page.navigate", url=f"{self.url}{path}"), path)

    def follow(self, selector: str, text: str | None = None) -> None:
        """Click, and return when the page that this leads to is loaded."""
        self._loaded(lambda: self.click(selector, text), f"{selector} {text}")

    def follow_key(self, key: str) -> None:
        """Press a key, and return when the page that this leads to is loaded."""
        self._loaded(lambda: self.press(key), f"what {key} leads to")

    def _loaded(self, begin: Callable[[], Any], what: str) -> None:
        before = self._loads
        answer = begin()
        if answer and answer.get("errorText"):
            raise Failed(f"{what}: {answer['errorText']}")
        self._until(lambda: self._loads > before, LOAD_SECONDS, f"{what} is loaded")

    @property
    def path(self) -> str:
        """The address of the page below the site, with its query."""
        return str(self.evaluate("location.pathname + location.search"))

    def evaluate(self, expression: str, **options: Any) -> Any:
        """Return an expression's value, or what its promise came to; the page's policy stays in force for the page."""
        wanted = {"returnByValue": True, "awaitPromise": True, **options}
        answer = self._call("Runtime.evaluate", expression=expression, **wanted)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise Failed(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def evaluate_apart(self, source: str, expression: str) -> Any:
        """Run a script in a world of its own, with the page's elements but not its globals; then an expression."""
        frame = self._call("Page.getFrameTree")["frameTree"]["frame"]["id"]
        world = self._call("Page.createIsolatedWorld", frameId=frame, worldName="apart")["executionContextId"]
        self.evaluate(source, contextId=world, returnByValue=False)
        return self.evaluate(expression, contextId=world)

    def texts(self, selector: str, text: str | None = None) -> list[str]:
        """Return what the visible elements say, white space as one blank; of an input its value."""
        return list(self.evaluate(TEXTS % (FIND, _arguments(selector, text))))

    def text(self, selector: str) -> str:
        """Return what all visible elements of a selector say together."""
        return " ".join(self.texts(selector))

    def wait(self, selector: str, contains: str, seconds: float = WAIT_SECONDS) -> float:
        """Wait until the elements say something; return how long it took."""
        return self.until(lambda: contains in self.text(selector), seconds, lambda: self._missed(selector, contains))

    def wait_gone(self, selector: str, contains: str, seconds: float = WAIT_SECONDS) -> float:
        """Wait until the elements do not say something any more; return how long it took."""
        said = lambda: f"{selector} says no more {contains!r}: {self.text(selector)[:2000]}"  # noqa: E731
        return self.until(lambda: contains not in self.text(selector), seconds, said)

    def _missed(self, selector: str, contains: str) -> str:
        return f"{selector} says {contains!r}; it says: {self.text(selector)[:2000]}"

    def until(self, condition: Callable[[], Any], seconds: float, what: Callable[[], str]) -> float:
        """Wait for a condition; return how long it took, in seconds."""
        began = time.monotonic()
        try:
            self._until(condition, seconds, "")
        except AssertionError:
            raise AssertionError(f"Not within {seconds} s: {what()}") from None
        return time.monotonic() - began

    @staticmethod
    def _until(condition: Callable[[], Any], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"Not within {seconds} s: {what}")
            time.sleep(0.02)

    def click(self, selector: str, text: str | None = None) -> None:
        """Press the mouse on the first visible element, as soon as there is one that nothing covers."""
        found: list[dict[str, float]] = []

        def is_there() -> bool:
            at = self.evaluate(MIDDLE % (FIND, _arguments(selector, text)))
            found[:] = [at] if at else []
            return bool(found)

        self.until(is_there, WAIT_SECONDS, lambda: f"{selector} {text or ''} can be clicked at {self.path}")
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **found[0])

    def fill(self, selector: str, value: str) -> None:
        """Type into a field, in place of what it has."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).select?.()")
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self._call("Input.insertText", text=value)

    def choose(self, selector: str, value: str) -> None:
        """Choose an option by its value."""
        field = f"document.querySelector({json.dumps(selector)})"
        change = "dispatchEvent(new Event('change', {bubbles: true}))"
        self.evaluate(f"{field}.value = {json.dumps(value)}; {field}.{change}")

    def press(self, key: str) -> None:
        """Press a key: Tab, Enter or Escape."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            parameters = {"key": key, "code": key, "windowsVirtualKeyCode": code, **(text if kind == "keyDown" else {})}
            self._call("Input.dispatchKeyEvent", type=kind, **parameters)

    def resize(self, width: int, *, dark: bool = False) -> None:
        """Show the page in a window of this width, as a phone below 600, in its light or dark colours."""
        phone = width < 600
        size = {"width": width, "height": 844 if phone else HEIGHT, "deviceScaleFactor": 1, "mobile": phone}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", features=features)

    @property
    def overhang(self) -> int:
        """By how many pixels the page is wider than its window."""
        return int(self.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    def widest(self) -> list[str]:
        """Return the elements that reach over the right edge of the window and have no such child."""
        return list(self.evaluate(WIDEST))

    def screenshot(self, file: Path, *, most_height: int = 4000) -> None:
        """Write a picture of the whole page as PNG, at most so high."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], most_height), "scale": 1}
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(answer["data"]))


def _arguments(selector: str, text: str | None) -> str:
    return f"{json.dumps(selector)}, {json.dumps(text)}"
