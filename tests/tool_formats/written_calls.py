"""Calls as models write them in text, one writer for each format. Written from the formats' descriptions, not from the
readers that they test."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Calls = Sequence[tuple[str, dict[str, Any]]]
"""Names and arguments."""
GEMMA_QUOTE = '<|"|>'


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _raw(value: Any) -> str:
    """As tag formats write values: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else _json(value)


def _objects(calls: Calls, arguments_key: str = "arguments") -> list[str]:
    return [_json({"name": name, arguments_key: arguments}) for name, arguments in calls]


def _list(calls: Calls, arguments_key: str = "arguments") -> str:
    return f"[{', '.join(_objects(calls, arguments_key))}]"


def _each(write: Callable[[str, dict[str, Any]], str], between: str = "\n") -> Callable[[Calls], str]:
    return lambda calls: between.join(write(name, arguments) for name, arguments in calls)


def _python(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _gemma(value: Any, mark: str) -> str:
    if isinstance(value, str):
        return f"{mark}{value}{mark}"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_gemma(inner, mark)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(_gemma(inner, mark) for inner in value)}]"
    return _json(value)


def _tags(opening: str, closing: str, newline: str) -> Callable[[str, dict[str, Any]], str]:
    """The parameters of Qwen3-Coder and Seed-OSS."""

    def write(name: str, arguments: dict[str, Any]) -> str:
        inner = "".join(
            f"<parameter={key}>{newline}{_raw(value)}{newline}</parameter>\n" for key, value in arguments.items()
        )
        return f"{opening}\n<function={name}>\n{inner}</function>\n{closing}"

    return write


def _invoke(
    prefix: str = "", attributes: Callable[[Any], str] = lambda value: ""
) -> Callable[[str, dict[str, Any]], str]:
    """`<invoke name>` with `<parameter name>`, as Claude, MiniMax and DeepSeek write it."""

    def write(name: str, arguments: dict[str, Any]) -> str:
        inner = "".join(
            f'<{prefix}parameter name="{key}"{attributes(value)}>{_raw(value)}</{prefix}parameter>\n'
            for key, value in arguments.items()
        )
        return f'<{prefix}invoke name="{name}">\n{inner}</{prefix}invoke>'

    return write


def _wrap(opening: str, write: Callable[[Calls], str], closing: str = "") -> Callable[[Calls], str]:
    return lambda calls: f"{opening}{write(calls)}{closing}"


def _arg_keys(name: str, arguments: dict[str, Any], separator: str = "") -> str:
    pairs = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{_raw(value)}</arg_value>\n" for key, value in arguments.items()
    )
    return f"<tool_call>{name}{separator}\n{pairs}</tool_call>"


def _is_text(value: Any) -> str:
    return f' string="{"true" if isinstance(value, str) else "false"}"'


def _kimi_k2(calls: Calls) -> str:
    inner = "".join(
        f"<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>{_json(arguments)}<|tool_call_end|>"
        for number, (name, arguments) in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{inner}<|tool_calls_section_end|>"


def _cohere(calls: Calls) -> str:
    listed = [
        {"tool_call_id": str(number), "tool_name": name, "parameters": arguments}
        for number, (name, arguments) in enumerate(calls)
    ]
    return f"<|START_ACTION|>{_json(listed)}<|END_ACTION|>"


WRITERS: Mapping[str, Callable[[Calls], str]] = {
    "hermes": lambda calls: "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in _objects(calls)),
    "qwen3_coder": _each(_tags("<tool_call>", "</tool_call>", "\n")),
    "seed_oss": _each(_tags("<seed:tool_call>", "</seed:tool_call>", "")),
    "llama3_json": lambda calls: "; ".join(_objects(calls, "parameters")),
    "llama3_python_tag": lambda calls: "<|python_tag|>" + "; ".join(_objects(calls, "parameters")),
    "pythonic": lambda calls: f"[{', '.join(_python(name, arguments) for name, arguments in calls)}]",
    "mistral_json": lambda calls: f"[TOOL_CALLS] {_list(calls)}",
    "mistral_args": _each(lambda name, arguments: f"[TOOL_CALLS]{name}[ARGS]{_json(arguments)}", ""),
    "deepseek_v3": _wrap(
        "<｜tool▁calls▁begin｜>",
        _each(
            lambda name, arguments: (
                f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{_json(arguments)}\n```<｜tool▁call▁end｜>"
            )
        ),
        "<｜tool▁calls▁end｜>",
    ),
    "deepseek_v31": _wrap(
        "<｜tool▁calls▁begin｜>",
        _each(
            lambda name, arguments: f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{_json(arguments)}<｜tool▁call▁end｜>",
            "",
        ),
        "<｜tool▁calls▁end｜>",
    ),
    "deepseek_dsml": _wrap(
        "<｜DSML｜function_calls>\n", _each(_invoke("｜DSML｜", _is_text)), "\n</｜DSML｜function_calls>"
    ),
    "kimi_k2": _kimi_k2,
    "glm": _each(_arg_keys),
    "hy3": _wrap(
        "<tool_calls>\n", _each(lambda name, arguments: _arg_keys(name, arguments, "<tool_sep>")), "\n</tool_calls>"
    ),
    "minimax_m2": _wrap("<minimax:tool_call>\n", _each(_invoke()), "\n</minimax:tool_call>"),
    "harmony": _each(
        lambda name, arguments: (
            f"<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
            f"{_json(arguments)}<|call|>"
        ),
        "",
    ),
    "granite3": lambda calls: f"<|tool_call|>{_list(calls)}",
    "granite_20b": lambda calls: "".join(f"<function_call> {one}" for one in _objects(calls)),
    "functools": lambda calls: f"functools{_list(calls)}",
    "cohere": _cohere,
    "gemma4": _each(lambda name, arguments: f"<|tool_call>call:{name}{_gemma(arguments, GEMMA_QUOTE)}<tool_call|>", ""),
    "functiongemma": _each(
        lambda name, arguments: f"<start_function_call>call:{name}{_gemma(arguments, '<escape>')}<end_function_call>",
        "",
    ),
    "olmo3": _wrap("<function_calls>", _each(_python), "</function_calls>"),
    "lfm2": lambda calls: (
        f"<|tool_call_start|>[{', '.join(_python(name, arguments) for name, arguments in calls)}]<|tool_call_end|>"
    ),
    "internlm2": lambda calls: "".join(
        f"<|action_start|><|plugin|>\n{one}<|action_end|>" for one in _objects(calls, "parameters")
    ),
    "jamba": lambda calls: f"<tool_calls>{_list(calls)}</tool_calls>",
    "nemotron_toolcall": lambda calls: f"<TOOLCALL>{_list(calls)}</TOOLCALL>",
    "functionary_v31": _each(lambda name, arguments: f"<function={name}>{_json(arguments)}</function>", ""),
    "anthropic_xml": _wrap("<function_calls>\n", _each(_invoke()), "\n</function_calls>"),
    "lmstudio_bracket": _each(
        lambda name, arguments: f"[TOOL_REQUEST]\n{_json({'name': name, 'arguments': arguments})}\n[END_TOOL_REQUEST]"
    ),
    "json": _list,
    "longcat": lambda calls: "\n".join(f"<longcat_tool_call>\n{one}\n</longcat_tool_call>" for one in _objects(calls)),
    "apertus": lambda calls: (
        f"<|tools_prefix|>{_json([{name: arguments} for name, arguments in calls])}<|tools_suffix|>"
    ),
}
"""Formats with one way to write several calls. ReAct writes one call only."""
