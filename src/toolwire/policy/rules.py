"""Rules as values: what each speaks of, and what it does. Checked by whoever reads them, so they are believed here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from toolwire.ir import NOTHING
from toolwire.wire import Json

Globs = tuple[str, ...]


class Subject(Struct, frozen=True):
    """One exchange as rules see it."""

    client: str = ""
    """The client's protocol."""
    agent: str = ""
    """The agent, by the name that it is known under; "" for one that nobody knows."""
    provider: str = ""
    model: str = ""
    """As the provider knows it."""
    asked: str = ""
    """The model as the client asked for it."""
    product: str = ""
    """The first product of the user agent, in small letters and without its version."""


class Match(Struct, frozen=True, kw_only=True):
    """What something speaks of. All that is said must hold; of several names, one."""

    client: Globs = ()
    agent: Globs = ()
    provider: Globs = ()
    model: Globs = ()
    tool: Globs = ()
    type: Globs = ()
    namespace: Globs = ()


class Reshape(Struct, frozen=True, kw_only=True):
    """Another name and another form for one parameter."""

    way: str = field(name="as")
    """How it is reshaped, such as `shell-text`."""
    to: str = ""
    """The parameter's name for the model; its own when left out."""


class Rule(Struct, frozen=True, kw_only=True):
    """What an operator does to tools on their way. A rule holds for the exchanges and the tools that it speaks of; of
    several that say the same thing of the same tool, the last one counts."""

    name: str = ""
    """What reports call it; `policy 1` and so on when left out."""
    client: Globs = ()
    """Protocols of clients."""
    agent: Globs = ()
    """Agents, recognised by their user agent: a name of the table in the guide, or the first product as it is sent."""
    provider: Globs = ()
    """Providers by their names in this file."""
    model: Globs = ()
    """Models, as the provider knows them or as the client asked for them."""
    tool: Globs = ()
    """Names of tools; all tools when left out."""
    type: Globs = ()
    """Kinds of tools: `function`, `custom`, or one that the provider runs, such as `web_search`."""
    namespace: Globs = ()
    """Namespaces of tools."""
    drop: bool | None = None
    """Take the tool away; `false` keeps it where an earlier rule takes it."""
    rename: str = ""
    """The tool's name for the model; `{name}` stands for the old one."""
    parameters: Mapping[str, str] = NOTHING
    """Other names for parameters: the client's name, and the model's."""
    reshape: Mapping[str, Reshape] = NOTHING
    """Other forms for parameters: `{ command = { to = "cmd", as = "shell-text" } }`."""
    hide: tuple[str, ...] = ()
    """Parameters of the client that the model does not see."""
    defaults: Mapping[str, Json] = NOTHING
    """What the client gets for parameters of its own that the model gave nothing for."""
    description: str | None = None
    """What the model reads about it; `{description}` stands for what the client wrote."""
    describe_at_most: Annotated[int, Meta(ge=1)] | None = None
    """The most characters of a description; cut behind a sentence."""
    schema: Mapping[str, Json] | None = None
    """The parameters as the model sees them."""
    guidance: str = ""
    """Told in the instructions when this rule took a tool away; `{tool}` stands for it, `{shell}` for the tool that
    runs commands."""
    clean: bool = False
    """Put right what the instructions, and the descriptions of other tools, say of tools that were taken away or
    renamed."""
    choice: Literal["", "weaken", "refuse"] = ""
    """A demand for a call that the model cannot be given: weakened and reported, or refused."""
    validate: Literal["", "off", "report", "retry", "refuse"] = ""
    """Check the arguments of calls against the schema that the client declared: say what is wrong, let the model try
    once more, or refuse the answer."""
    max_tools: Annotated[int, Meta(ge=0)] | None = None
    """The most tools of those that the rule speaks of."""
    keep: Globs = ()
    """Which of them stay first, by priority."""
    strict: bool | None = None
    """Hold the model to the schema, where it can be."""
    parallel: bool | None = None
    """May the model make several calls at once?"""
    within: tuple[Match, ...] = ()
    """Further matches that must hold too: a preset's rule, where a rule of the file says when."""

    @property
    def refuses(self) -> bool:
        """Can it be that the model is told to call something else, or otherwise?"""
        return bool(self.drop) or self.max_tools is not None or self.validate == "retry"


MATCHES = Match.__struct_fields__
EFFECTS = tuple(name for name in Rule.__struct_fields__ if name not in (*MATCHES, "name", "within"))
UNSEEN = frozenset({"defaults", "choice", "validate", "parallel"})
"""Effects that change nothing in what the model reads of its tools."""
SEEN = tuple(name for name in EFFECTS if name not in UNSEEN)
