"""The order of losses does not depend on the seed of Python's hash function."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

KEYS = ", ".join(f'"x_{word}": 1' for word in ("one", "two", "three", "four", "five", "six", "seven"))
STREAM = f"""
from toolwire import Stream
stream = Stream(source="openai-responses", target="openai-chat")
stream.feed(b'data: {{"type": "response.created", "response": {{}}, {KEYS}}}\\n\\n')
stream.feed(b'data: {{"type": "response.completed", "response": {{"id": "r", "model": "m", "status": "completed", "output": []}}}}\\n\\n')
stream.close()
print([loss.what for loss in stream.losses])
"""
TEXT = f"""
from toolwire.core.losses import Ledger
from toolwire.protocols.openai_chat.models import QUIRKS
ledger = Ledger("anthropic", "openai-chat")
part = {{"type": "text", "text": "a", {KEYS}}}
QUIRKS["plain-text-content"].rewrite_body({{"messages": [{{"role": "user", "content": [part]}}]}}, "", ledger)
print([loss.what for loss in ledger.losses])
"""


@pytest.mark.parametrize("script", [STREAM, TEXT], ids=["stream", "text"])
def test_the_order_of_losses_is_that_of_the_input(script: str) -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1
    assert said.pop().count("x_") == 7
