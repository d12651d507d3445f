"""The table of all formats, in the order in which they are tried."""

from __future__ import annotations

from typing import Final

from toolwire.tool_formats.formats import (
    arg_key_tags,
    bare_json,
    deepseek,
    functionary,
    gemma,
    harmony,
    inkling,
    invoke_tags,
    kimi_k2,
    kimi_k3,
    llama,
    marked_json,
    minicpm5,
    minimax_m3,
    mistral,
    muse_glimmer,
    pythonic,
    qwen1,
    qwen3_coder,
    react,
    tool_tags,
)
from toolwire.tool_formats.frame import ToolFormat

FORMATS: Final[tuple[ToolFormat, ...]] = (
    *marked_json.FORMATS,
    *mistral.FORMATS,
    *llama.FORMATS,
    *functionary.FORMATS,
    *qwen3_coder.FORMATS,
    *arg_key_tags.FORMATS,
    *invoke_tags.FORMATS,
    *minimax_m3.FORMATS,
    *deepseek.FORMATS,
    *kimi_k2.FORMATS,
    *kimi_k3.FORMATS,
    *harmony.FORMATS,
    *gemma.FORMATS,
    *muse_glimmer.FORMATS,
    *inkling.FORMATS,
    *minicpm5.FORMATS,
    *tool_tags.FORMATS,
    *pythonic.FORMATS,
    *qwen1.FORMATS,
    *react.FORMATS,
    *bare_json.FORMATS,
)
