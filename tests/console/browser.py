"""Chromium, driven through tests/console/driver.mjs. Every wait is for a condition, up to `PATIENCE` seconds."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from waits import PATIENCE

HERE = Path(__file__).parent
MODEL = 'role=combobox[name="Model"]'
"""The field for a model, which several views have."""


def quote(words: str) -> str:
    """Words in a selector."""
    return json.dumps(words, ensure_ascii=False)


class BrowserError(AssertionError):
    """What playwright said: something was not there in time, or several elements were found."""


class Browser:
    def __init__(self, node: str, chromium: str, folder: Path) -> None:
        command = [node, str(HERE / "driver.mjs"), chromium, str(folder), str(int(PATIENCE * 1000))]
        self._process = subprocess.Popen(
            command, cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def send(self, command: str, **rest: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"command": command, **rest}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the driver has ended"
        answer = json.loads(line)
        if "error" in answer:
            raise BrowserError(answer["error"])
        return answer["value"]

    def open(self, url: str, width: int = 1280, height: int = 800, theme: str = "light") -> Page:
        return Page(self, self.send("open", width=width, height=height, theme=theme), url)

    def close(self) -> None:
        self.send("quit")
        self._process.communicate(timeout=PATIENCE)


class Page:
    """A page with a profile of its own; what happens in it is recorded."""

    def __init__(self, browser: Browser, id: str, url: str) -> None:
        self._browser = browser
        self.id = id
        self.url = url
        self.allowed: tuple[str, ...] = ()
        """Messages of the browser's console that belong to a test."""

    def call(self, method: str, *args: Any) -> Any:
        return self._browser.send("page", page=self.id, method=method, args=args)

    def show(self, hash: str, heading: str = "") -> None:
        """A view. The first one loads the page; the others change only the hash."""
        if self.evaluate("location.protocol") == "about:":
            self.call("goto", f"{self.url}/{hash}")
        else:
            self.evaluate(f"location.hash = {json.dumps(hash)}")
        self.find(f"main >> {heading or 'h1'}").wait()

    def find(self, selector: str) -> Locator:
        return Locator(self._browser, self.id, selector)

    def text(self, words: str) -> Locator:
        return self.find(f"text={quote(words)} >> visible=true >> nth=0")

    def button(self, name: str) -> Locator:
        return self.find(f"role=button[name={quote(name)}]")

    def press(self, *keys: str) -> None:
        for key in keys:
            self._browser.send("keyboard", page=self.id, method="press", args=[key])

    def type(self, text: str) -> None:
        self._browser.send("keyboard", page=self.id, method="type", args=[text])

    def evaluate(self, expression: str) -> Any:
        return self.call("evaluate", expression)

    def wait_until(self, expression: str) -> None:
        self._browser.send("waitUntil", page=self.id, expression=expression)

    def use(self, width: int, theme: str) -> None:
        self.call("setViewportSize", {"width": width, "height": 800})
        self.call("emulateMedia", {"colorScheme": theme})

    def axe(self) -> list[str]:
        found: list[str] = self._browser.send("axe", page=self.id)
        return found

    def download(self, selector: str) -> str:
        text: str = self._browser.send("download", page=self.id, selector=selector)
        return text

    @property
    def seen(self) -> dict[str, Any]:
        found: dict[str, Any] = self._browser.send("seen", page=self.id)
        return found

    def check(self) -> None:
        """Nothing went wrong, nothing was asked of another host, and nothing popped up."""
        seen = self.seen
        assert [text for text in seen["problems"] if not any(word in text for word in self.allowed)] == []
        assert seen["dialogs"] == []
        assert seen["popups"] == 0
        assert [url for url in seen["requests"] if not url.startswith(f"{self.url}/")] == []

    def close(self) -> None:
        self._browser.send("close", page=self.id)


class Locator:
    """Elements of a page; an action waits until there is one that can be acted on."""

    def __init__(self, browser: Browser, page: str, selector: str) -> None:
        self._browser, self._page, self.selector = browser, page, selector

    def call(self, method: str, *args: Any) -> Any:
        return self._browser.send("locator", page=self._page, selector=self.selector, method=method, args=args)

    def wait(self, state: str = "visible") -> None:
        self.call("waitFor", {"state": state})

    def wait_for_text(self, *words: str) -> None:
        """Until it shows all of them, whatever white space is between. What is loading may show some of them first."""
        self._browser.send("waitForText", page=self._page, selector=self.selector, words=words)

    def wait_for_count(self, count: int) -> None:
        self._browser.send("waitForCount", page=self._page, selector=self.selector, count=count)

    def click(self, **options: Any) -> None:
        self.call("click", options)

    def fill(self, text: str) -> None:
        self.call("fill", text)

    def choose(self, value: str) -> None:
        self.call("selectOption", value)

    def focus(self) -> None:
        self.call("focus")

    @property
    def text(self) -> str:
        """What it shows now; for words that are expected there is `wait_for_text`."""
        found: str = self.call("innerText")
        return found

    @property
    def count(self) -> int:
        """As many as there are now; for a number that is expected there is `wait_for_count`."""
        found: int = self.call("count")
        return found

    @property
    def value(self) -> str:
        found: str = self.call("inputValue")
        return found

    def attribute(self, name: str) -> str | None:
        found: str | None = self.call("getAttribute", name)
        return found
