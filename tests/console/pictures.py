"""Makes the pictures of the console in docs/pictures: `make console-pictures`. Every one shows real exchanges through the
real gateway, with a provider that plays the model.
"""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

from console.browser import Browser, Page
from console.exchanges import play_claude_session, play_others, provider_settings
from console.install import MISSING, find_chromium
from gateway.raw_exchange import Served, ask, stage
from toolwire.gateway.surfaces.console.api import API_PATH
from toolwire.gateway.telemetry.record import ExchangeRecord, UpstreamNames

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
MAX_BYTES = 200_000
LIMIT = '[[limits]]\nname = "a month"\nper = "model"\ndollars_per_month = 2\nsoft = true\n'
PAUSE = 0.06
"""Seconds between the events of a stream, so that the times look like those of a model."""


def add_an_hour(served: Served) -> None:
    """Requests of the hour before, which nobody waits for: the only ones here that are made up."""
    start = time.time() - 3540
    kinds = (("claude", "claude-opus-5-5", 9.0), ("openai", "gpt-5.5", 5.0), ("google", "gemini-3.8-flash", 2.0))
    for second in range(0, 3540, 7):
        for number, (provider, model, seconds) in enumerate(kinds):
            wave = 1 + 0.4 * math.sin(second / 500 + number) + 0.3 * math.sin(second / 77 * (number + 1))
            record = ExchangeRecord(request_id="", started=0.0, started_at=start + second, ended=seconds * wave)
            record.upstream, record.first_byte = UpstreamNames(provider=provider, model=model), 0.3 * seconds
            record.status = 529 if second % 217 == 0 and number == 0 else 200
            served.gateway.telemetry.recent.counts.add([record])


def find_row(served: Served, agent: str, number: int) -> str:
    rows = ask(served.port, "GET", API_PATH + "exchanges").json()["exchanges"]
    return [str(row["id"]) for row in reversed(rows) if row["agent"].startswith(agent)][number]


def take_picture(page: Page, name: str) -> None:
    page.wait_until("!document.querySelector('.loading')")
    path = FOLDER / f"console-{name}.png"
    page.call("screenshot", {"path": str(path)})
    path.write_bytes(compress_again(path.read_bytes()))
    size = path.stat().st_size
    sys.stdout.write(f"{path.relative_to(FOLDER.parents[1])}  {size / 1000:.0f} kB\n")
    assert size < MAX_BYTES, "too large for a README"


def compress_again(png: bytes) -> bytes:
    """The same picture with zlib's best compression: Chromium uses its fastest."""
    head, data, place = png[:8], b"", 8
    chunks: list[tuple[bytes, bytes]] = []
    while place < len(png):
        length = int.from_bytes(png[place : place + 4], "big")
        kind, body = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        place += 12 + length
        if kind == b"IDAT":
            data += body
        else:
            chunks.append((kind, body))
    packed = zlib.compress(zlib.decompress(data), 9)
    parts = [*chunks[:-1], (b"IDAT", packed), chunks[-1]]
    return head + b"".join(
        len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big") for kind, body in parts
    )


def main() -> int:
    chromium, node = find_chromium(), shutil.which("node")
    if chromium is None or node is None:
        sys.stderr.write(f"error: {MISSING}\n")
        return 1
    clock = threading.Event()
    with (
        tempfile.TemporaryDirectory() as folder,
        stage(Path(folder), more=provider_settings("{plain}") + LIMIT) as served,
    ):
        browser = Browser(node, chromium, Path(folder))
        for _ in range(2):
            play_others(served, lambda: clock.wait(PAUSE))
        play_claude_session(served, lambda: clock.wait(PAUSE))
        page = browser.open(served.url)
        page.show("#/live")
        page.find(".exchange-rows a >> nth=0").wait()
        take_picture(page, "live")
        page.show(f"#/exchange/{find_row(served, 'claude', 1)}/calls")
        page.find(".call-pair >> nth=0").wait()
        take_picture(page, "exchange")
        page.show("#/sessions")
        page.find(".session-row:has-text('weather service')").click()
        page.find(".turns").wait()
        take_picture(page, "session")
        add_an_hour(served)
        page.show("#/usage?show=p50&since=1h")
        page.find(".plot canvas").wait()
        take_picture(page, "usage")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
