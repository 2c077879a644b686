"""A headless Chromium of a test's own: a profile in a folder, nothing but this machine to connect to."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from provision import browser
from provision.kind import NothingFound
from tests.support.browser.devtools import Devtools, Failed
from tests.support.browser.page import Page
from tests.support.locks import locked
from tests.support.place import ROOT

END_SECONDS = 10
#: The shell's redirections give the two pipes the numbers that the browser expects, 3 and 4.
SHELL = 'to=$1 from=$2; shift 2; exec "$@" 3</dev/fd/$to 4>/dev/fd/$from'
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-component-extensions-with-background-pages",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-features=OptimizationHints,MediaRouter,Translate,AutofillServerCommunication,CertificateTransparency",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    "--no-proxy-server",
    "--no-pings",
    "--metrics-recording-only",
    "--password-store=basic",
    "--use-mock-keychain",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--lang=en-GB",
)


def executable() -> Path:
    """Return Chromium's path, installed if needed. Without it a test is skipped, loudly; in CI it fails."""
    with locked(Path(os.environ.get("TMPDIR", "/tmp")) / "antenna-chromium.lock"):
        try:
            return browser.obtain(os.environ)
        except NothingFound as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"NO CHROMIUM HERE: {error}")


@dataclass
class Chromium:
    """A running browser."""

    process: "subprocess.Popen[bytes]"
    devtools: Devtools

    @contextmanager
    def visitor(self, url: str) -> Iterator[Page]:
        """Give a page with cookies and storage of its own, at a site whose ``url`` has no slash at its end."""
        context = self.devtools.call("Target.createBrowserContext")["browserContextId"]
        target = self.devtools.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.devtools.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        try:
            yield Page(self.devtools, session, url)
        finally:
            with suppress(Failed):
                self.devtools.call("Target.disposeBrowserContext", browserContextId=context)


@contextmanager
def running(folder: Path) -> Iterator[Chromium]:
    """Start a browser with its profile and its log in ``folder``; end it, by its id, after the block."""
    argv = [str(executable()), *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
    if os.geteuid() == 0:
        argv.insert(1, "--no-sandbox")  # Chromium's sandbox does not work for root.
    from_us, to_browser = os.pipe()
    from_browser, to_us = os.pipe()
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            ["/bin/sh", "-c", SHELL, "sh", str(from_us), str(to_us), *argv],
            cwd=ROOT,
            env={**os.environ, "HOME": str(folder), "TZ": "UTC", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(from_us, to_us),
            start_new_session=True,
        )
    os.close(from_us)
    os.close(to_us)
    devtools = Devtools(from_browser, to_browser)
    try:
        yield Chromium(process, devtools)
    finally:
        _end(process, devtools)


def _end(process: "subprocess.Popen[bytes]", devtools: Devtools) -> None:
    with suppress(Failed):
        devtools.call("Browser.close")
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    devtools.close()
