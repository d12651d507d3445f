"""Which formats a model speaks, by its name: a hint for the order in which formats are tried, never a condition."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from toolwire.tool_formats.formats import FORMATS
from toolwire.tool_formats.frame import ToolFormat
from toolwire.tool_formats.rest_of_answer import FORMATS as REST_FORMATS

FAMILIES: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    (("qwen3-coder", "qwen3.5", "qwen3.6", "qwen3.7", "qwen3.8", "qwen3-next-coder", "nemotron-3", "step-3.5"),
     ("qwen3_coder",)),
    (("qwen", "qwq", "hermes", "granite-4", "granite4", "ernie", "smollm", "mimo-vl"), ("hermes",)),
    (("gpt-oss",), ("harmony",)),
    (("v3.2-exp", "deepseek-v3.1"), ("deepseek_v31",)),
    (("deepseek-v4", "deepseek-v3.2"), ("deepseek_dsml",)),
    (("deepseek-r1", "deepseek-v3", "cogito"), ("deepseek_v3",)),
    (("kimi-k3",), ("kimi_k3",)),
    (("kimi",), ("kimi_k2",)),
    (("glm-4.5", "glm-4.6", "glm-4.7", "glm-5", "ling-3", "laguna"), ("glm",)),
    (("minimax-m3",), ("minimax_m3",)),
    (("minimax-m2",), ("minimax_m2",)),
    (("minimax-m1",), ("jamba",)),
    (("llama-4", "llama4", "toolace"), ("pythonic", "llama3_json")),
    (("nemotron",), ("nemotron_toolcall",)),
    (("llama-3", "llama3"), ("llama3_json", "llama3_python_tag", "pythonic")),
    (("magistral", "devstral", "ministral-3", "mistral-small-3", "mistral-large-3"), ("mistral_args",)),
    (("mistral", "mixtral", "ministral"), ("mistral_json",)),
    (("gemma-4", "gemma4"), ("gemma4",)),
    (("functiongemma",), ("functiongemma",)),
    (("gemma",), ("gemma_tool_code", "pythonic")),
    (("granite-20b",), ("granite_20b",)),
    (("granite",), ("granite3",)),
    (("phi-4-mini", "phi4-mini", "firefunction"), ("functools",)),
    (("command-a", "command-r7b", "north"), ("cohere",)),
    (("command-r",), ("cohere_action",)),
    (("olmo-3", "olmo3"), ("olmo3",)),
    (("lfm2",), ("lfm2",)),
    (("internlm",), ("internlm2",)),
    (("hy3",), ("hy3",)),
    (("jamba", "hunyuan", "apriel"), ("jamba",)),
    (("seed-oss",), ("seed_oss",)),
    (("functionary",), ("functionary_v31", "functionary_v32")),
    (("apertus",), ("apertus",)),
    (("gigachat",), ("gigachat3",)),
    (("longcat",), ("longcat",)),
    (("minicpm5",), ("minicpm5",)),
    (("xlam",), ("json",)),
)  # fmt: skip
"""What a model's name contains, and the formats to expect. The first row that matches counts."""

ALIASES: Final = {
    "hunyuan_a13b": "jamba",
    "apriel": "jamba",
    "json_fenced": "json",
    "llama3_json": "json",
    "xlam": "json",
}
"""Other names of formats in `tool_format`."""

AUTO: Final = "auto"
EAGER: Final = "eager"
"""As `auto`, and the rest of an answer may be a call without marks."""
OFF: Final = "off"
FORMAT_NAMES: Final = (AUTO, EAGER, OFF, *sorted({*ALIASES, *(row.name for row in FORMATS)}))
"""The values of `tool_format`."""


def expected_formats(model: str) -> tuple[str, ...]:
    """The names of the formats that a model of this name was trained for; () if it is not known."""
    name = model.lower()
    for part in (name.rpartition("/")[2], name):
        for words, formats in FAMILIES:
            if any(word in part for word in words):
                return formats
    return ()


@lru_cache(maxsize=256)
def formats_for_model(model: str, tool_format: str) -> tuple[ToolFormat, ...]:
    """The formats to look for, in order. `tool_format` is `auto`, `eager`, or the name of one format; ValueError for
    others."""
    if tool_format == EAGER:
        return (*formats_for_model(model, AUTO), *REST_FORMATS)
    if tool_format == AUTO:
        expected = [ALIASES.get(name, name) for name in expected_formats(model)]
        known = [row for row in FORMATS if row.name in expected or not row.needs_known_model]
        return tuple(sorted(known, key=lambda row: expected.index(row.name) if row.name in expected else 99))
    wanted = ALIASES.get(tool_format, tool_format)
    found = tuple(row for row in FORMATS if row.name == wanted)
    if not found:
        raise ValueError(f"unknown tool format {tool_format!r}; known are {', '.join(FORMAT_NAMES)}")
    return found
