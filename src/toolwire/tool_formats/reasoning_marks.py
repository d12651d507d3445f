"""The marks around reasoning and answers in text, and the tokens at an answer's end that servers let through."""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct


class ReasoningMark(Struct, frozen=True):
    """The marks around reasoning."""

    opening: str
    closings: tuple[str, ...]
    place: Literal["anywhere", "start"] = "start"
    """Where it may open: anywhere, or at the beginning of the answer and after reasoning and calls. Once an answer has
    had reasoning, the beginning of a line will do: GLM thinks again between paragraphs."""


REASONING_MARKS: Final = (
    ReasoningMark("<think>", ("</think>",)),  # DeepSeek, Qwen, GLM, Kimi K2, MiniMax M2, Nemotron and many others
    ReasoningMark("<mm:think>", ("</mm:think>",), "anywhere"),  # MiniMax M3
    ReasoningMark("<seed:think>", ("</seed:think>",), "anywhere"),  # Seed-OSS
    ReasoningMark("[THINK]", ("[/THINK]",)),  # Magistral, Ministral 3
    ReasoningMark("<|START_THINKING|>", ("<|END_THINKING|>",), "anywhere"),  # Cohere
    ReasoningMark("<|channel>thought\n", ("<channel|>",), "anywhere"),  # Gemma 4
    ReasoningMark("<|inner_prefix|>", ("<|inner_suffix|>",), "anywhere"),  # Apertus
    ReasoningMark("<|open|>think<|sep|>", ("<|close|>think<|sep|>",), "anywhere"),  # Kimi K3
    ReasoningMark("<|content_thinking|>", ("<|end_message|>",), "anywhere"),  # Inkling
    ReasoningMark("<reasoning>", ("</reasoning>",)),  # these four: fine-tunes
    ReasoningMark("<thinking>", ("</thinking>",)),
    ReasoningMark("<thought>", ("</thought>",)),
    ReasoningMark("<reflection>", ("</reflection>",)),
)
OPENING_MARKS: Final = {mark.opening: mark for mark in REASONING_MARKS}

STRAY_CLOSINGS: Final = (
    "</think>", "</mm:think>", "</seed:think>", "[/THINK]", "<|END_THINKING|>", "<channel|>", "<|close|>think<|sep|>",
    "[BEGIN FINAL RESPONSE]",
)  # fmt: skip
"""They may come without their opening, which is in the prompt then. Apriel's opening is a sentence that other models
write, too ("Here are my reasoning steps:"). Its chat template has it in the prompt, so it is not looked for."""

PREFILLED: Final = ReasoningMark("", STRAY_CLOSINGS)
"""Reasoning that was opened in the prompt, before its first character: some models write the opening once more."""
OPENED: Final = ReasoningMark("\n", STRAY_CLOSINGS)
"""The same, once it has begun."""

ANSWER_MARKS: Final = {
    "<response>": "</response>",  # Granite 3.3
    "<answer>": "</answer>",  # Hunyuan
}
"""Around the answer, directly after reasoning."""

ANSWER_TOKENS: Final = (
    "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>",  # Cohere
    "<|start_header_id|>assistant<|end_header_id|>",  # Llama
    "<|content_text|>", "<|content_invoke_tool_text|>", "<|content_tool_error|>", "<|end_message|>",  # Inkling
    "[END FINAL RESPONSE]",  # Apriel
)  # fmt: skip
"""Around the answer, anywhere."""

END_TOKENS: Final = (
    "</s>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|return|>", "<|call|>", "<｜end▁of▁sentence｜>",
    "<|end_of_text|>", "<|endoftext|>", "<|END_OF_TURN_TOKEN|>", "[e~[", "<|eot|>", "<|assistant_end|>",
    "<|observation|>", "<end_of_turn>", "<turn|>", "<|tool_response>", "<seed:eos>", "<|content_model_end_sampling|>",
)  # fmt: skip
"""Dropped where they end the answer, or follow a call."""

CALL_ENDS: Final = (
    "</tool_call>", "</tool_calls>", "</function>", "</function_call>", "</function_calls>", "</invoke>",
    "</minimax:tool_call>", "</seed:tool_call>", "</longcat_tool_call>", "</TOOLCALL>", "[END_TOOL_REQUEST]",
    "<|tool_call_end|>", "<|tool_calls_section_end|>", "<｜tool_call_end｜>", "<｜tool▁calls▁end｜>", "<tool_call|>",
)  # fmt: skip
"""Closing marks of calls, which models write twice: dropped where they follow a call."""

match_call_ends = re.compile(rf"(?:(?:{'|'.join(map(re.escape, CALL_ENDS))})\s*)+").match
match_end_tokens = re.compile(rf"(?:(?:{'|'.join(map(re.escape, END_TOKENS))})\s*)+").match


def strip_end_tokens(text: str) -> str:
    """The text without blanks and end tokens at its end."""
    tokens = tuple(END_TOKENS)
    text = text.rstrip()
    while text.endswith(tokens):
        text = text[: text.rindex(next(one for one in tokens if text.endswith(one)))].rstrip()
    return text
