"""Results as one page to look at, without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import msgspec

from toolwire.conformance.report import SHORTS
from toolwire.conformance.saved import Result

PLACE = "/*RESULTS*/null"


def page(results: Sequence[Result]) -> str:
    template = (files("toolwire.conformance") / "page.html").read_text("utf-8")
    data = msgspec.json.encode({"protocols": SHORTS, "results": results}).decode()
    return template.replace(PLACE, data.replace("</", "<\\/"), 1)
