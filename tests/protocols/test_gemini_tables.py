"""The Gemini room in tables: what one thing of its wire means, and how one meaning is written."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from material import SAMPLES, corpus, needs_corpus
from toolwire.core.codec import WriteContext
from toolwire.core.ir import (
    STATUS_BY_FAILURE_KIND,
    Call,
    Choice,
    Failure,
    Finish,
    FinishKind,
    Format,
    Media,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    ProviderTool,
    Reasoning,
    Refusal,
    Request,
    Response,
    Result,
    Seal,
    Settings,
    Text,
    Thinking,
    Tool,
    ToolChoice,
    ToolName,
    ToolReference,
    Turn,
    Usage,
    replace_fields,
    strip_origins,
)
from toolwire.core.json_values import Malformed, decode, encode
from toolwire.core.losses import Ledger
from toolwire.protocols.gemini import CODEC
from toolwire.protocols.gemini.models import family

ELSEWHERE = Origin("elsewhere", (None, "there"), {})
"""What was read from another protocol."""

WORLD = [{"parts": [{"text": "hi"}], "role": "user"}]


def ledger(source: str = "elsewhere") -> Ledger:
    return Ledger(source, "gemini")


def codes(book: Ledger) -> list[str]:
    return [loss.code for loss in book.losses]


def read(body: Any) -> Request:
    return CODEC.read_request(decode(json.dumps(body)))


def write(request: Request, book: Ledger | None = None) -> Any:
    return json.loads(encode(CODEC.write_request(request, book or ledger())))


def read_part(part: Any, role: str = "user") -> Part:
    return strip_origins(read({"contents": [{"parts": [part], "role": role}]}).turns[0].parts[0])  # type: ignore[no-any-return]


def write_parts(*parts: Part, model: str = "", role: Any = "user", book: Ledger | None = None) -> Any:
    return write(Request(model, turns=(Turn(role, parts),)), book)["contents"][0]["parts"]


# --- parts ----------------------------------------------------------------------------------------------------------

BOTH_WAYS: list[tuple[Any, Part]] = [
    ({"text": "a"}, Text("a")),
    ({"text": ""}, Text("")),
    ({"text": "", "thoughtSignature": "QQ=="}, Text("", seal=Seal("gemini", "QQ=="))),
    ({"text": "a", "thought": True}, Reasoning("a", "summary")),
    (
        {"text": "a", "thought": True, "thoughtSignature": "QQ=="},
        Reasoning("a", "summary", seal=Seal("gemini", "QQ==")),
    ),
    ({"functionCall": {"id": "1", "name": "f", "args": {"a": 1}}}, Call("1", "f", '{"a":1}')),
    (
        {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "Q_-="},
        Call("", "f", "{}", seal=Seal("gemini", "Q_-=")),
    ),
    (
        {"functionResponse": {"id": "1", "name": "f", "response": {"output": "ok"}}},
        Result("1", (Text("ok"),), name="f"),
    ),
    (
        {"functionResponse": {"name": "f", "response": {"error": "no"}}},
        Result("", (Text("no"),), True, "f"),
    ),
    (
        {"functionResponse": {"name": "f", "response": {"output": [1, {"a": None}]}}},
        Result("", (Text('[1,{"a":null}]'),), name="f", value=[1, {"a": None}]),
    ),
    ({"functionResponse": {"name": "f", "response": {"output": ""}}}, Result("", (Text(""),), name="f")),
    ({"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}, Media("image", "image/png", data="iVBORw==")),
    ({"inlineData": {"mimeType": "audio/wav", "data": "QQ=="}}, Media("audio", "audio/wav", data="QQ==")),
    (
        {"inlineData": {"mimeType": "application/pdf", "data": "QQ==", "displayName": "a.pdf"}},
        Media("file", "application/pdf", data="QQ==", name="a.pdf"),
    ),
    (
        {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://a/b.jpg"}},
        Media("image", "image/jpeg", url="https://a/b.jpg"),
    ),
    (
        {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://a/b.mp4"}},
        Media("video", "video/mp4", file_id="gs://a/b.mp4"),
    ),
    ({"fileData": {"fileUri": "https://youtu.be/x"}}, Media("video", url="https://youtu.be/x")),
    (
        {"executableCode": {"language": "PYTHON", "code": "1", "id": "e"}},
        ProviderCall("e", "code_execution", '{"language":"PYTHON","code":"1"}'),
    ),
    (
        {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "no", "id": "e"}},
        ProviderResult("e", "code_execution", text="no", error="OUTCOME_FAILED"),
    ),
    (
        {"toolCall": {"id": "t", "toolType": "URL_CONTEXT", "args": {"url": "u"}}},
        ProviderCall("t", "web_fetch", '{"url":"u"}'),
    ),
    (
        {"toolResponse": {"id": "t", "toolType": "FILE_SEARCH", "response": {"a": 1}}},
        ProviderResult("t", "file_search", text='{"a":1}'),
    ),
]


@pytest.mark.parametrize(("wire", "part"), BOTH_WAYS, ids=[json.dumps(wire) for wire, _ in BOTH_WAYS])
def test_a_part_is_read_and_written(wire: Any, part: Part) -> None:
    assert read_part(wire) == part
    book = ledger()
    assert write_parts(part, book=book) == [wire]
    assert codes(book) == []


READ_ONLY: list[tuple[Any, Part]] = [
    ({"functionCall": {"name": "f"}}, Call("", "f", "")),
    ({"functionCall": {"name": "f", "args": None}}, Call("", "f", "")),
    ({"functionCall": {"name": "f", "args": "{}"}}, Call("", "f", "{}")),
    ({"function_call": {"name": "f", "args": {}}, "thought_signature": "QQ"}, Call("", "f", "{}", seal=Seal("gemini", "QQ"))),
    ({"function_response": {"name": "f", "response": {"result": 3}}}, Result("", (Text("3"),), name="f", value=3)),
    ({"functionResponse": {"name": "f", "response": {"content": "c"}}}, Result("", (Text("c"),), name="f")),
    ({"functionResponse": {"name": "f", "response": {"name": "f", "content": "c"}}}, Result("", (Text("c"),), name="f")),
    (
        {"functionResponse": {"name": "f", "response": {"name": "g", "content": "c"}}},
        Result("", (Text('{"name":"g","content":"c"}'),), name="f", value={"name": "g", "content": "c"}),
    ),
    ({"functionResponse": {"name": "f", "response": {"output": None}}}, Result("", (Text("null"),), name="f")),
    ({"functionResponse": {"name": "f", "response": {}}}, Result("", (Text("{}"),), name="f", value={})),
    ({"functionResponse": {"name": "f", "response": "s"}}, Result("", (Text("s"),), name="f")),
    ({"functionResponse": {"name": "f"}}, Result("", (), name="f")),
    ({"inline_data": {"mime_type": "image/png", "data": "-_8"}}, Media("image", "image/png", data="+/8=")),
    ({"thoughtSignature": "QQ=="}, Text("", seal=Seal("gemini", "QQ=="))),
    ({"executable_code": {"code": "1"}}, ProviderCall("gcode_3d254af95e59b77f", "code_execution", '{"code":"1"}')),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "part"), READ_ONLY, ids=[json.dumps(wire) for wire, _ in READ_ONLY])
def test_other_spellings_of_a_part_are_read(wire: Any, part: Part) -> None:
    assert read_part(wire) == part


def test_what_nobody_knows_is_carried() -> None:
    body = {
        "contents": [
            {
                "parts": [
                    {"text": "a", "partMetadata": {"x": 1}},
                    {"hologram": {"y": 2}},
                    {"toolCall": {"toolType": "MEDIA_PROCESSING"}},
                    {"functionCall": {"name": "f", "args": {}, "mood": "calm"}},
                ],
                "role": "model",
                "tone": "dry",
            }
        ],
        "safetySettings": [{"category": "c"}],
        "cachedContent": "cachedContents/1",
        "generationConfig": {"temperature": 1, "speechConfig": {"z": 3}},
        "toolConfig": {"retrievalConfig": {"languageCode": "de"}},
    }
    request = read(body)
    assert request.has_provider_history
    assert [part.kind for part in request.turns[0].parts if isinstance(part, Opaque)] == ["hologram", "toolCall"]
    assert sorted(stray.key for stray in request.unknown_fields) == [
        "cachedContent",
        "mood",
        "partMetadata",
        "retrievalConfig",
        "safetySettings",
        "speechConfig",
        "tone",
    ]
    turn = request.turns[0]
    parts = tuple(part if isinstance(part, Opaque) else replace_fields(part) for part in turn.parts)
    rewritten = replace_fields(request, turns=(replace_fields(turn, parts=parts),))
    assert write(rewritten, ledger("gemini")) == body


def test_results_find_their_names_and_media_their_places() -> None:
    image = Media("image", "image/png", data="QQ==", origin=ELSEWHERE)
    turns = (
        Turn("user", (Text("go"),)),
        Turn("assistant", (Call("1", "look"), Call("2", "look"))),
        Turn("user", (Result("1", (Text("a"), Text("b"), image)), Result("2", (Text("c"),)), Text("and?"))),
    )
    shown = {"inlineData": {"mimeType": "image/png", "data": "QQ=="}}

    def answers(model: str, book: Ledger) -> Any:
        return write(Request(model, turns=turns), book)["contents"][2]["parts"]

    book = ledger()
    second = {"functionResponse": {"id": "2", "name": "look", "response": {"output": "c"}}}
    assert answers("gemini-3-pro-preview", book) == [
        {"functionResponse": {"id": "1", "name": "look", "response": {"output": "a\nb"}, "parts": [shown]}},
        second,
        {"text": "and?"},
    ]
    assert codes(book) == ["signature-added"]
    book = ledger()
    first = {"functionResponse": {"id": "1", "name": "look", "response": {"output": "a\nb"}}}
    assert answers("", book) == [first, second, shown, {"text": "and?"}]
    assert codes(book) == ["media-moved"]
    book = ledger()
    assert [part.get("functionResponse", {}).get("id") for part in answers("gemini-2.5-pro", book)] == [None] * 4
    assert codes(book) == ["id-rewritten", "id-rewritten", "media-moved"]


def test_what_cannot_be_said_is_noted() -> None:
    strange: list[tuple[Part, str]] = [
        (Reasoning("hm", origin=ELSEWHERE), "reasoning-dropped"),
        (Refusal("no"), "refusal-as-text"),
        (Text("a", cache=""), "cache-dropped"),
        (Text("a", seal=Seal("elsewhere", "x")), "seal-dropped"),
        (Opaque("thing", ELSEWHERE), "opaque-dropped"),
        (ProviderCall("h", "web_search", origin=ELSEWHERE), "part-dropped"),
        (ProviderResult("h", "web_search", origin=ELSEWHERE), "part-dropped"),
        (ToolReference("f"), "part-dropped"),
        (Media("file", file_id="file-1", origin=ELSEWHERE), "media-dropped"),
        (Media("image"), "media-dropped"),
        (Media("image", data="QQ=="), "default-added"),
        (Media("image", "image/png", data="QQ==", detail="high"), "no-counterpart"),
        (Call("1", "f", "[1]"), "arguments-wrapped"),
        (Result("1", (Text("a"),)), "name-added"),
    ]
    for part, code in strange:
        book = ledger()
        assert write_parts(part, book=book), part
        assert code in codes(book), part
    assert write_parts(Call("1", "f", "[1]"))[0]["functionCall"]["args"] == {"_raw": "[1]"}


def test_data_urls_become_inline_data() -> None:
    media = Media("image", url="data:image/gif;base64,R0lG", origin=ELSEWHERE)
    assert write_parts(media) == [{"inlineData": {"mimeType": "image/gif", "data": "R0lG"}}]
    media = Media("image", url="https://a/b.webp?x=1", origin=ELSEWHERE)
    assert write_parts(media) == [{"fileData": {"mimeType": "image/webp", "fileUri": "https://a/b.webp?x=1"}}]


# --- calls in pieces ------------------------------------------------------------------------------------------------


def test_pieces_of_a_call_in_the_history_are_one_call() -> None:
    def piece(**call: Any) -> Any:
        return {"role": "model", "parts": [{"functionCall": call}]}

    body = {
        "contents": [
            *WORLD,
            piece(id="v", name="cook", willContinue=True),
            piece(partialArgs=[{"jsonPath": "$.dish.steps[1]", "stringValue": "sti", "willContinue": True}], willContinue=True),
            piece(partialArgs=[{"jsonPath": "$.dish.steps[1]", "stringValue": "r"}], willContinue=True),
            piece(partialArgs=[{"jsonPath": "$['odd key']", "boolValue": False}, {"jsonPath": "$.n", "nullValue": None}], will_continue=True),
            piece(),
            {"role": "user", "parts": [{"functionResponse": {"id": "v", "name": "cook", "response": {"output": "ok"}}}]},
        ]
    }  # fmt: skip
    request = read(body)
    assert [turn.role for turn in request.turns] == ["user", "assistant", "user"]
    arguments = '{"dish":{"steps":[null,"stir"]},"odd key":false,"n":null}'
    assert strip_origins(request.turns[1].parts) == (Call("v", "cook", arguments),)
    assert CODEC.write_request(request, ledger("gemini")) is request.origin.wire  # type: ignore[union-attr]
    rewritten = write(replace(request, origin=None))
    assert rewritten["contents"][1]["parts"] == [
        {"functionCall": {"id": "v", "name": "cook", "args": json.loads(arguments)}}
    ]


def test_a_call_whose_last_piece_never_came_is_incomplete() -> None:
    request = read({"contents": [{"role": "model", "parts": [{"functionCall": {"name": "f", "willContinue": True}}]}]})
    assert strip_origins(request.turns[0].parts) == (Call("", "f", "", incomplete=True),)


# --- tools and choices ----------------------------------------------------------------------------------------------


def test_declarations_are_read_from_either_slot_and_written_into_the_plain_one() -> None:
    plain = {"type": "object", "properties": {"a": {"type": ["string", "null"], "minLength": 1}}}
    own = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": True, "min_length": "1"}}}
    body = {
        "contents": WORLD,
        "tools": [
            {"functionDeclarations": [{"name": "f", "description": "d", "parameters": own}]},
            {"function_declarations": [{"name": "g", "parameters_json_schema": plain, "response": {"type": "STRING"}}]},
            {"functionDeclarations": [{"name": "h", "parametersJsonSchema": own}, {"name": "i"}]},
        ],
    }
    tools = strip_origins(read(body).tools)
    assert tools == (
        Tool("f", "d", plain),
        Tool("g", None, plain, output={"type": "string"}),
        Tool("h", None, plain),
        Tool("i"),
    )
    assert write(Request(tools=tools))["tools"] == [
        {
            "functionDeclarations": [
                {"name": "f", "description": "d", "parametersJsonSchema": plain},
                {"name": "g", "parametersJsonSchema": plain, "responseJsonSchema": {"type": "string"}},
                {"name": "h", "parametersJsonSchema": plain},
                {"name": "i"},
            ]
        }
    ]


def test_models_before_the_second_generation_get_the_older_dialect() -> None:
    book = ledger()
    schema = {"type": "object", "properties": {"a": {"const": "x"}}, "additionalProperties": False}
    request = Request(
        "gemini-1.5-pro", tools=(Tool("f", parameters=schema),), settings=Settings(format=Format("schema", schema))
    )
    body = write(request, book)
    assert body["tools"][0]["functionDeclarations"][0]["parameters"]["properties"]["a"] == {
        "type": "STRING",
        "enum": ["x"],
    }
    assert body["generationConfig"]["responseSchema"]["type"] == "OBJECT"
    assert "schema-rewritten" in codes(book)


def test_only_properties_that_are_described_are_demanded() -> None:
    inner = {"type": "object", "properties": {"required": {"type": "string"}}, "required": ["required"]}
    given = {
        "type": "object",
        "properties": {"x": inner, "y": {"type": "object", "required": ["z"]}},
        "required": ["x", "gone"],
    }
    book = ledger()
    declared = write(Request(tools=(Tool("f", parameters=given),)), book)["tools"][0]["functionDeclarations"][0]
    assert declared["parametersJsonSchema"] == {
        "type": "object",
        "properties": {"x": inner, "y": {"type": "object"}},
        "required": ["x"],
    }
    assert codes(book) == ["schema-rewritten"]


FUNCTION = Tool("f")


@pytest.mark.parametrize(
    ("model", "tools", "boxes", "noted"),
    [
        ("", (ProviderTool("web_search", origin=ELSEWHERE),), ["googleSearch"], ["tool-mapped"]),
        ("", (ProviderTool("web_search"), ProviderTool("code_execution")), ["googleSearch", "codeExecution"], []),
        ("gemini-2.5-flash", (FUNCTION, ProviderTool("web_search")), ["functionDeclarations"], ["tool-dropped"]),
        ("", (FUNCTION, ProviderTool("web_fetch")), ["functionDeclarations"], ["tool-dropped"]),
        ("gemini-3-pro", (FUNCTION, ProviderTool("web_fetch"), Tool("g")), ["functionDeclarations", "urlContext"], ["default-added"]),
        ("gemini-3-pro", (ProviderTool("mcp", origin=ELSEWHERE),), [], ["tool-dropped"]),
        ("gemini-3-pro", (ProviderTool("file_search", origin=ELSEWHERE),), [], ["tool-dropped"]),
        ("gemini-3-pro", (ProviderTool("web_search", max_uses=3),), ["googleSearch"], ["tool-mapped", "no-counterpart"]),
        ("gemini-3-pro", (Opaque("shell", ELSEWHERE),), [], ["tool-dropped"]),
        ("", (replace(FUNCTION, strict=True, defer=True, cache=""),), ["functionDeclarations"], ["no-counterpart", "no-counterpart", "cache-dropped"]),
    ],
)  # fmt: skip
def test_built_in_tools_stand_alone(model: str, tools: Any, boxes: list[str], noted: list[str]) -> None:
    book = ledger()
    body = write(Request(model, tools=tools), book)
    assert [key for box in body.get("tools", []) for key in box] == boxes
    assert codes(book) == noted
    shown = body.get("toolConfig", {}).get("includeServerSideToolInvocations")
    assert shown == (True if "default-added" in noted else None)


CHOICES: list[tuple[Any, ToolChoice]] = [
    ({"mode": "AUTO"}, ToolChoice("auto")),
    ({"mode": "NONE"}, ToolChoice("none")),
    ({"mode": "ANY"}, ToolChoice("required")),
    ({"mode": "ANY", "allowedFunctionNames": ["f"]}, ToolChoice("one", (ToolName("f"),))),
    ({"mode": "ANY", "allowedFunctionNames": ["f", "g"]}, ToolChoice("allowed", (ToolName("f"), ToolName("g")), True)),
    ({"mode": "VALIDATED", "allowedFunctionNames": ["f"]}, ToolChoice("allowed", (ToolName("f"),))),
]


@pytest.mark.parametrize(("wire", "choice"), CHOICES)
def test_choices(wire: Any, choice: ToolChoice) -> None:
    config = {"functionCallingConfig": wire}
    assert strip_origins(read({"contents": WORLD, "toolConfig": config}).choice) == choice
    assert write(Request(tools=(FUNCTION, Tool("g")), choice=choice))["toolConfig"] == config


@pytest.mark.parametrize(
    ("choice", "tools", "wire", "noted"),
    [
        (
            ToolChoice("one", (ToolName("web_search", "web_search"),)),
            (FUNCTION,),
            {"mode": "AUTO"},
            ["choice-weakened"],
        ),
        (ToolChoice("required", origin=ELSEWHERE), (), None, ["choice-weakened"]),
        (ToolChoice("auto", origin=ELSEWHERE), (), None, []),
        (ToolChoice("required", origin=ELSEWHERE), (FUNCTION,), {"mode": "ANY"}, ["choice-mapped"]),
    ],
)
def test_choices_that_cannot_be_told(choice: ToolChoice, tools: Any, wire: Any, noted: list[str]) -> None:
    book = ledger()
    config = write(Request(tools=tools, choice=choice), book).get("toolConfig")
    assert config == (wire and {"functionCallingConfig": wire})
    assert codes(book) == noted


def test_lower_case_and_numbers_are_read() -> None:
    def mode(word: Any) -> ToolChoice | None:
        return strip_origins(
            read({"contents": WORLD, "tool_config": {"function_calling_config": {"mode": word}}}).choice
        )  # type: ignore[no-any-return]

    assert [mode(word) for word in ("any", 2, "Validated")] == [
        ToolChoice("required"),
        ToolChoice("required"),
        ToolChoice("auto"),
    ]


# --- settings -------------------------------------------------------------------------------------------------------


def test_settings_are_only_spelled_otherwise() -> None:
    generation = {
        "maxOutputTokens": 5,
        "temperature": 0.5,
        "topP": 0.9,
        "topK": 3.0,
        "stopSequences": ["a"],
        "seed": 7,
        "candidateCount": 2,
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
        "responseLogprobs": True,
        "logprobs": 3,
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
        "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "LOW"},
    }
    body = {"contents": WORLD, "serviceTier": "flex", "generationConfig": generation}
    settings = strip_origins(read(body).settings)
    assert settings == Settings(
        5, 0.5, 0.9, 3.0, ("a",), 7, 2, 0.1, 0.2, True, 3, None,
        Thinking(effort="low", summary="auto"), Format("schema", {"type": "object"}), tier="flex",
    )  # fmt: skip
    book = ledger()
    assert write(Request(turns=(Turn("user", (Text("hi"),)),), settings=settings), book) == body
    assert codes(book) == []
    assert read(body).settings.where["top_k"] == ((None, "generationConfig"), "topK")


def test_the_config_of_the_sdks_is_unwrapped() -> None:
    body = {
        "model": "models/gemini-2.5-pro",
        "contents": "hi",
        "config": {
            "systemInstruction": "Be brief.",
            "tools": [{"functionDeclarations": [{"name": "f"}]}],
            "temperature": 0,
            "maxOutputTokens": 9,
            "safetySettings": [{"category": "c"}],
            "speechConfig": {"a": 1},
        },
    }
    request = read(body)
    assert request.model == "models/gemini-2.5-pro"
    assert strip_origins(request.system) == (Text("Be brief."),)
    assert (request.settings.temperature, request.settings.max_tokens) == (0, 9)
    assert strip_origins(request.tools) == (Tool("f"),)
    assert write(replace_fields(request, model="gemini-3-pro"), ledger("gemini")) == {
        "model": "models/gemini-3-pro",
        "contents": WORLD,
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [{"functionDeclarations": [{"name": "f"}]}],
        "generationConfig": {"temperature": 0, "maxOutputTokens": 9, "speechConfig": {"a": 1}},
        "safetySettings": [{"category": "c"}],
    }


@pytest.mark.parametrize(
    ("model", "thinking", "config"),
    [
        ("gemini-3-pro-preview", Thinking(effort="medium"), {"thinkingLevel": "LOW"}),
        ("gemini-3.1-pro-preview", Thinking(effort="medium"), {"thinkingLevel": "MEDIUM"}),
        ("gemini-3-flash", Thinking("off"), {"thinkingLevel": "MINIMAL"}),
        ("gemini-3-flash", Thinking(effort="xhigh"), {"thinkingLevel": "HIGH"}),
        ("gemini-3-flash", Thinking("on", budget=20000), {"thinkingLevel": "HIGH"}),
        ("gemini-pro-latest", Thinking(effort="low"), {"thinkingLevel": "LOW"}),
        ("gemini-3-flash", Thinking("auto"), None),
        ("gemini-2.5-flash", Thinking(effort="medium"), {"thinkingBudget": 8192}),
        ("gemini-2.5-flash", Thinking("off"), {"thinkingBudget": 0}),
        ("gemini-2.5-pro", Thinking("off"), {"thinkingBudget": 128}),
        (
            "gemini-2.5-pro",
            Thinking("on", budget=99999, summary="none"),
            {"includeThoughts": False, "thinkingBudget": 32768},
        ),
        ("gemini-2.5-flash-lite", Thinking("on", budget=100), {"thinkingBudget": 512}),
        ("gemini-2.5-flash", Thinking("auto", summary="auto"), {"includeThoughts": True, "thinkingBudget": -1}),
        ("gemini-2.0-flash", Thinking(effort="high"), None),
        ("my-tuned", Thinking(effort="high"), {"thinkingLevel": "HIGH"}),
        ("my-tuned", Thinking("on", budget=77, origin=ELSEWHERE), {"includeThoughts": True, "thinkingBudget": 77}),
    ],
)
def test_thinking_is_measured_as_the_model_takes_it(model: str, thinking: Thinking, config: Any) -> None:
    body = write(Request(model, settings=Settings(thinking=thinking)))
    assert body.get("generationConfig", {}).get("thinkingConfig") == config


def test_too_many_stops_are_cut_and_the_rest_is_noted() -> None:
    book = ledger()
    settings = Settings(stop=tuple("abcdefg"), parallel=False, user="u", store=True, tier="default")
    body = write(Request(settings=settings), book)
    assert body["generationConfig"] == {"stopSequences": list("abcde")}
    assert body["serviceTier"] == "standard"
    assert codes(book) == ["setting-clamped", "no-counterpart", "no-counterpart", "no-counterpart", "setting-mapped"]
    book = ledger()
    write(Request(settings=Settings(parallel=True, stream_usage=True)), book)
    assert codes(book) == []


def test_a_format_beside_functions_needs_the_third_generation() -> None:
    format = Format("schema", {"type": "object"}, "shape", strict=True, origin=ELSEWHERE)
    for model, said in (("gemini-2.5-pro", False), ("gemini-3-pro", True), ("", True)):
        body = write(Request(model, tools=(FUNCTION,), settings=Settings(format=format)))
        assert ("generationConfig" in body) == said


# --- signatures -----------------------------------------------------------------------------------------------------

SIGNED = Seal("gemini", "QQ==")
PLACEHOLDER = "skip_thought_signature_validator"


def signatures(model: str, *turns: Turn, book: Ledger | None = None) -> list[Any]:
    body = write(Request(model, turns=turns), book)
    return [
        part.get("thoughtSignature")
        for content in body["contents"]
        for part in content["parts"]
        if "functionCall" in part
    ]


ASK, ANSWER = Turn("user", (Text("go"),)), Turn("user", (Result("1", (Text("ok"),), name="f"),))


def test_unsigned_calls_get_the_placeholder_and_keep_it() -> None:
    one, two = Call("1", "f"), Call("2", "f")
    step = Turn("assistant", (one, two))
    signed = Turn("assistant", (replace(one, seal=SIGNED), two))
    book = ledger()
    assert signatures("gemini-3-pro-preview", ASK, step, ANSWER, step, ANSWER, book=book) == [PLACEHOLDER, None] * 2
    assert codes(book) == ["signature-added"]
    assert signatures("gemini-3-pro-preview", ASK, signed, ANSWER) == ["QQ==", None]
    assert signatures("gemini-3-pro-preview", ASK, step, ANSWER, ASK) == [PLACEHOLDER, None]
    assert signatures("gemini-2.5-pro", ASK, step, ANSWER) == [None, None]
    assert signatures("unknown", ASK, step, ANSWER) == [None, None]
    apart = (Turn("assistant", (replace(one, seal=SIGNED),)), Turn("assistant", (two,)))
    assert signatures("gemini-3-pro-preview", ASK, *apart, ANSWER) == ["QQ==", None]
    steered = Turn("user", (*ANSWER.parts, Text("now this")))
    assert signatures("gemini-3-pro-preview", ASK, step, steered) == [PLACEHOLDER, None]


def test_a_client_of_our_own_that_lost_its_signatures_is_helped_too() -> None:
    body = {
        "contents": [*WORLD, {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}],
        "labels": {"a": "b"},
    }
    request = read(body)
    assert CODEC.write_request(replace(request, model="gemini-2.5-pro"), ledger()) is request.origin.wire  # type: ignore[union-attr]
    written = write(replace(request, model="gemini-3-pro"))
    assert written["contents"][1]["parts"][0]["thoughtSignature"] == PLACEHOLDER
    assert written["labels"] == {"a": "b"}


# --- answers --------------------------------------------------------------------------------------------------------


def test_an_answer_is_written_in_camel_case() -> None:
    parts: tuple[Part, ...] = (Reasoning("hm", "raw"), Text("a"), Refusal("no"), Call("c", "f", '{"x": 1}'))
    response = Response("id", "m", 1700000000, (Choice(0, parts, Finish("calls", "tool_use")),), Usage(3, 4, total=7))
    book = ledger()
    assert json.loads(encode(CODEC.write_response(response, book, WriteContext()))) == {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "hm", "thought": True},
                        {"text": "a"},
                        {"text": "no"},
                        {"functionCall": {"id": "c", "name": "f", "args": {"x": 1}}},
                    ],
                    "role": "model",
                },
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7},
        "modelVersion": "m",
        "createTime": "2023-11-14T22:13:20Z",
        "responseId": "id",
    }
    assert codes(book) == ["refusal-as-text"]


@pytest.mark.parametrize("kind", get_args(FinishKind))
def test_every_ending_has_a_word(kind: Any) -> None:
    response = Response(choices=(Choice(0, (Text("a"),), Finish(kind, "elsewhere")),))
    book = ledger()
    out: Any = CODEC.write_response(response, book, WriteContext())
    again = CODEC.read_response(out).choices[0].finish
    assert again is not None
    exact = kind in ("stop", "length", "filter", "malformed", "other")
    assert (again.kind == kind) == exact
    assert codes(book) == ([] if exact or kind == "calls" else ["finish-mapped"])


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", Finish("stop", "STOP")),
        ("stop", Finish("stop", "STOP")),
        (1, Finish("stop", "STOP")),
        (2, Finish("length", "MAX_TOKENS")),
        (99, Finish("other", "99")),
        ("FUNCTION_CALL", Finish("calls", "FUNCTION_CALL")),
        ("MODEL_ARMOR", Finish("filter", "MODEL_ARMOR")),
        ("NEVER_SEEN", Finish("other", "NEVER_SEEN")),
        ("CONTINUATION", Finish("pause", "CONTINUATION")),
    ],
)
def test_endings(reason: Any, finish: Finish) -> None:
    response = CODEC.read_response({"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": reason}]})
    assert response.choices[0].finish == finish
    assert response.failure is None


@pytest.mark.parametrize(
    "reason",
    ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE", 9],
)  # fmt: skip
def test_a_broken_answer_is_a_failure(reason: Any) -> None:
    body = {"candidates": [{"finishReason": reason, "finishMessage": "print(", "index": 0}]}
    response = CODEC.read_response(body)
    assert response.failure is not None
    assert response.failure.kind == "upstream"
    assert response.failure.code == ("malformed_function_call" if reason == 9 else reason.lower())
    assert "print(" in response.failure.message
    assert CODEC.write_response(response, ledger("gemini"), WriteContext()) is body
    again = CODEC.read_response(CODEC.write_response(strip_origins(response), ledger(), WriteContext()))
    assert strip_origins(again) == strip_origins(response)


def test_a_blocked_prompt_is_an_answer_without_parts() -> None:
    body = {
        "promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "why"},
        "usageMetadata": {"promptTokenCount": 4},
    }
    response = CODEC.read_response(body)
    assert strip_origins(response.choices) == (Choice(0, (), Finish("filter", "SAFETY", detail="why (SAFETY)")),)
    assert strip_origins(response.usage) == Usage(4)
    assert CODEC.write_response(response, ledger("gemini"), WriteContext()) is body


def test_usage_arithmetic() -> None:
    wire = {
        "promptTokenCount": 10,
        "cachedContentTokenCount": 6,
        "toolUsePromptTokenCount": 5,
        "candidatesTokenCount": 3,
        "thoughtsTokenCount": 20,
        "totalTokenCount": 38,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10}],
    }
    response = CODEC.read_response({"candidates": [{"finishReason": "STOP"}], "usageMetadata": wire})
    assert strip_origins(response.usage) == Usage(15, 23, 6, None, 20, 38)
    assert [(stray.key, stray.code) for stray in response.unknown_fields] == [("promptTokensDetails", "usage-mapped")]


def test_several_candidates_are_several_choices() -> None:
    body = json.loads((SAMPLES / "gemini" / "generate_content.json").read_text())
    body["candidates"].append(
        {"content": {"parts": [{"text": "b"}], "role": "model"}, "finishReason": "STOP", "index": 1}
    )
    response = CODEC.read_response(decode(json.dumps(body)))
    assert [choice.index for choice in response.choices] == [0, 1]
    assert len(CODEC.write_response(strip_origins(response), ledger(), WriteContext())["candidates"]) == 2


# --- malformed input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ([], ""),
        ({}, ""),
        ({"contents": 5}, "/contents"),
        ({"contents": [5]}, "/contents/0"),
        ({"contents": [{"role": "king", "parts": []}]}, "/contents/0/role"),
        ({"contents": [{"role": 5}]}, "/contents/0/role"),
        ({"contents": [{"parts": 5}]}, "/contents/0/parts"),
        ({"contents": [{"parts": ["a"]}]}, "/contents/0/parts/0"),
        ({"contents": [{"parts": [{"text": 5}]}]}, "/contents/0/parts/0/text"),
        ({"contents": [{"parts": [{"functionCall": 5}]}]}, "/contents/0/parts/0/functionCall"),
        ({"contents": [{"parts": [{"functionCall": {"args": {}}}]}]}, "/contents/0/parts/0/functionCall"),
        ({"contents": [{"parts": [{"functionCall": {"name": "f", "args": [1]}}]}]}, "/contents/0/parts/0/functionCall/args"),
        ({"contents": [{"parts": [{"functionResponse": {"name": 5}}]}]}, "/contents/0/parts/0/functionResponse/name"),
        ({"contents": [{"parts": [{"inlineData": {"data": 5}}]}]}, "/contents/0/parts/0/inlineData/data"),
        ({"contents": [{"parts": [{"text": "", "thoughtSignature": 5}]}]}, "/contents/0/parts/0/thoughtSignature"),
        ({"contents": [], "tools": 5}, "/tools"),
        ({"contents": [], "tools": [{"functionDeclarations": {}}]}, "/tools/0/functionDeclarations"),
        ({"contents": [], "tools": [{"functionDeclarations": [{}]}]}, "/tools/0/functionDeclarations/0"),
        ({"contents": [], "tools": [{"googleSearch": 5}]}, "/tools/0/googleSearch"),
        ({"contents": [], "toolConfig": {"functionCallingConfig": {"mode": "MAYBE"}}}, "/toolConfig/functionCallingConfig/mode"),
        ({"contents": [], "generationConfig": {"temperature": "hot"}}, "/generationConfig/temperature"),
        ({"contents": [], "generationConfig": {"stopSequences": [5]}}, "/generationConfig/stopSequences/0"),
        ({"contents": [], "generationConfig": {"thinkingConfig": 5}}, "/generationConfig/thinkingConfig"),
        ({"contents": [], "systemInstruction": 5}, "/systemInstruction"),
        ({"contents": [], "config": []}, "/config"),
    ],
)  # fmt: skip
def test_malformed_requests_name_the_place(body: Any, path: str) -> None:
    with pytest.raises(Malformed) as caught:
        CODEC.read_request(body)
    assert caught.value.path == path


# --- errors ---------------------------------------------------------------------------------------------------------


def failure(body: Any, status: int = 0, **headers: str) -> Failure:
    return strip_origins(CODEC.read_error(body, status, headers))  # type: ignore[no-any-return]


def error(code: int, status: str, message: str = "m", *details: Any) -> Any:
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (error(400, "INVALID_ARGUMENT"), "invalid"),
        (error(400, "FAILED_PRECONDITION"), "invalid"),
        (error(400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens allowed (8)."), "context"),
        (error(400, "INVALID_ARGUMENT", "key", {"reason": "API_KEY_INVALID"}), "authentication"),
        (error(401, "UNAUTHENTICATED"), "authentication"),
        (error(403, "PERMISSION_DENIED"), "permission"),
        (error(404, "NOT_FOUND"), "not_found"),
        (error(409, "ABORTED"), "conflict"),
        (error(429, "RESOURCE_EXHAUSTED"), "rate"),
        (error(429, "RESOURCE_EXHAUSTED", "m", {"violations": [{"quotaId": "RequestsPerDay"}]}), "quota"),
        (error(499, "CANCELLED"), "cancelled"),
        (error(500, "INTERNAL"), "server"),
        (error(503, "UNAVAILABLE"), "overloaded"),
        (error(504, "DEADLINE_EXCEEDED"), "deadline"),
        ([error(503, "UNAVAILABLE")], "overloaded"),
    ],
)  # fmt: skip
def test_errors_have_kinds_and_come_back_as_they_were(body: Any, kind: str) -> None:
    read = CODEC.read_error(body, 0, {})
    assert read.kind == kind
    sent = CODEC.write_error(read)
    assert sent.body is body
    assert sent.status == (body[0] if isinstance(body, list) else body)["error"]["code"]


def test_samples_of_errors() -> None:
    def sample(name: str) -> Any:
        return json.loads((SAMPLES / "gemini" / name).read_text())

    assert failure(sample("error_400.json"), 400).param == "contents"
    limited = failure(sample("error_429.json"), 429)
    assert (limited.kind, limited.retry_after, limited.code) == ("rate", 24.0, "RESOURCE_EXHAUSTED")
    assert failure(sample("error_400.array.json"), 400).message.startswith("Please ensure")


@pytest.mark.parametrize(
    "body", ["<html>Bad gateway</html>", None, [], {}, {"error": "odd"}, 5, [5], {"error": {"details": 5}}]
)
def test_any_error_body_is_a_failure(body: Any) -> None:
    read = failure(body, 502, **{"Retry-After": "3"})
    assert (read.kind, read.status, read.retry_after) == ("upstream", 502, 3.0)
    assert read.message
    assert set(CODEC.write_error(read).body) == {"error"}


@pytest.mark.parametrize("kind", STATUS_BY_FAILURE_KIND)
def test_every_kind_of_failure_is_written_and_read_again(kind: str) -> None:
    given = Failure(kind, "it failed", STATUS_BY_FAILURE_KIND[kind], retry_after=2.5, param="contents")
    sent = CODEC.write_error(given)
    assert sent.headers == {"retry-after": "3", "retry-after-ms": "2500"}
    again = failure(sent.body, sent.status)
    coarser = {"billing": "permission", "timeout": "deadline", "unprocessable": "invalid", "upstream": "server"}
    assert again.kind == coarser.get(kind, kind)
    assert (again.retry_after, again.param) == (None if kind == "quota" else 2.5, "contents")
    assert sent.body["error"]["code"] == sent.status


@needs_corpus
def test_recorded_errors() -> None:
    for one in corpus():
        if one.protocol == "gemini" and one.status >= 400:
            read = CODEC.read_error(one.response, one.status, {})
            assert read.status == one.status
            assert read.code
            assert CODEC.write_error(read).body is one.response


# --- outside --------------------------------------------------------------------------------------------------------


def test_paths() -> None:
    assert CODEC.http.request_path("gemini-3-pro", False) == "/v1beta/models/gemini-3-pro:generateContent"
    assert CODEC.http.request_path("models/m", True) == "/v1beta/models/m:streamGenerateContent?alt=sse"
    assert CODEC.http.request_path("tunedModels/t", True) == "/v1beta/tunedModels/t:streamGenerateContent?alt=sse"


@pytest.mark.parametrize(
    ("model", "major", "minor", "size"),
    [
        ("gemini-3-pro-preview", 3, 0, "pro"),
        ("models/gemini-2.5-flash-lite", 2, 5, "lite"),
        ("google/gemini-3.8-flash", 3, 8, "flash"),
        ("gemini-flash-latest", 3, 1, "flash"),
        ("gemini-1.5-pro-latest", 1, 5, "pro"),
        ("gemini-pro", 1, 0, "pro"),
        ("gemma-9", 0, 0, ""),
        ("", 0, 0, ""),
    ],
)
def test_families(model: str, major: int, minor: int, size: str) -> None:
    found = family(model)
    assert (found.major, found.minor, found.size) == (major, minor, size)
