"""Which images are described, and what replaces them."""

from __future__ import annotations

from toolwire.core.ir import Media, Request, Result, Text, Turn
from toolwire.core.losses import Ledger
from toolwire.translation.request_steps.images import ImageDescription, find_images, replace_images

ONE, TWO = Media("image", "image/png", "AAAA", cache=""), Media("image", url="https://pictures.example/two.png")
FILE, SOUND = Media("image", file_id="file_1"), Media("audio", "audio/wav", "BBBB")
REQUEST = Request(
    turns=(
        Turn("user", (Text("Look"), ONE, FILE, SOUND)),
        Turn("tool", (Result("call_1", (Text("{}"), TWO, ONE), value={}), Result("call_2", (Text("x"),), value="x"))),
    )
)


def test_each_image_once() -> None:
    """Not files that only their provider has, and nothing but images."""
    assert find_images(REQUEST) == (ONE, TWO)


def test_what_replaces_them() -> None:
    """Only what is described; the value of a result goes with its image, and a cache breakpoint stays."""
    ledger = Ledger("a", "b")
    seen = ImageDescription("eyes/one", "A dot.")
    text = Text("[image described by eyes/one: A dot.]", cache="")
    whole = replace_images(REQUEST, {"AAAA": seen, TWO.url: ImageDescription("eyes/one", problem="it slept")}, ledger)
    assert whole.turns[0].parts == (Text("Look"), text, FILE, SOUND)
    first, second = whole.turns[1].parts
    assert first == Result("call_1", (Text("{}"), Text("[an image was left out: it could not be described]"), text))
    assert second is REQUEST.turns[1].parts[1]
    losses = {loss.code: loss for loss in ledger.losses}
    assert {code: loss.severity for code, loss in losses.items()} == {
        "media-described": "changed",
        "media-dropped": "lost",
    }
    assert losses["media-dropped"].why == "it slept"


def test_nothing_to_replace() -> None:
    assert replace_images(REQUEST, {"CCCC": ImageDescription("eyes/one", "x")}, Ledger("a", "b")) is REQUEST
