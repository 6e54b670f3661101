"""A real headless Chromium, spoken to over a pair of pipes in its own protocol: no driver and no package is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
ANSWER_S_MAX = 60.0
POLL_S = 0.05


def executable() -> str | None:
    """Where a Chromium is on this machine."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Chromium:
    """One page. Every wait has a bound; what the browser says of errors is in `complaints`."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to = to_browser
        self._from = from_browser
        self._number = 0
        self._data = b""
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM", "Accessibility"):
            self._ask(f"{domain}.enable")

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        said: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            said["sessionId"] = self._session
        os.write(self._to, json.dumps(said).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == self._number:
                assert "error" not in heard, heard
                found: dict[str, Any] = heard["result"]
                return found

    def _hear(self) -> dict[str, Any]:
        while b"\0" not in self._data:
            more = os.read(self._from, 1 << 20)
            assert more, "the browser has ended"
            self._data += more
        line, _, self._data = self._data.partition(b"\0")
        heard: dict[str, Any] = json.loads(line)
        if heard.get("method") == "Log.entryAdded":
            self.complaints.append(heard["params"]["entry"]["text"])
        return heard

    # --- what a person does ---

    def as_phone(self, *, dark: bool = False) -> None:
        """A small screen, that is touched."""
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])

    def without_scripts(self) -> None:
        """As in a browser that runs none."""
        self._ask("Emulation.setScriptExecutionDisabled", value=True)

    def open(self, url: str) -> None:
        """Type an address, and wait until the page is there."""
        self._ask("Page.navigate", url=url)
        self.wait("document.readyState == 'complete'")

    def look(self, expression: str) -> Any:
        """What the page is, asked from outside of it."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until that is so."""
        deadline = time.monotonic() + ANSWER_S_MAX
        while not self.look(f"!!({expression})"):
            assert time.monotonic() < deadline, f"never: {expression}\n{self.text()}"
            time.sleep(POLL_S)

    def text(self) -> str:
        """What can be read."""
        return str(self.look("document.body ? document.body.innerText : ''"))

    def write(self, selector: str, words: str) -> None:
        """Go to a field and type."""
        self.look(f"document.querySelector({json.dumps(selector)}).focus()")
        self._ask("Input.insertText", text=words)

    def press(self, label: str) -> None:
        """Press the button of this name, where it is on the screen."""
        find = (
            f"[...document.querySelectorAll('button')].find(b => b.innerText.startsWith({json.dumps(label)}))"
        )
        self.look(f"{find}.scrollIntoView({{block: 'center'}})")
        box = self.look(
            f"(b => (r => [r.x + r.width / 2, r.y + r.height / 2])(b.getBoundingClientRect()))({find})"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def heard_by_a_screen_reader(self) -> list[tuple[str, str]]:
        """Role and name of everything that one would say."""
        nodes = self._ask("Accessibility.getFullAXTree")["nodes"]
        return [
            (str(node["role"]["value"]), str(node.get("name", {}).get("value", "")))
            for node in nodes
            if not node.get("ignored")
        ]


@contextmanager
def chromium(folder: Path) -> Iterator[Chromium]:
    """Start one with a profile of its own in a folder."""
    found = executable()
    assert found is not None, "the caller has looked"
    theirs_in, to_browser = os.pipe()
    from_browser, theirs_out = os.pipe()

    def places() -> None:  # where it looks for the pipes
        first, second = os.dup(theirs_in), os.dup(theirs_out)
        os.dup2(first, 3)
        os.dup2(second, 4)

    process = subprocess.Popen(
        [
            found,
            "--headless=new",
            "--no-sandbox",  # tests may run as root, which its sandbox refuses
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--remote-debugging-pipe",
            f"--user-data-dir={folder}",
        ],
        preexec_fn=places,
        close_fds=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Chromium(to_browser, from_browser)
    finally:
        os.close(to_browser)
        os.close(from_browser)
        process.kill()
        process.wait()
