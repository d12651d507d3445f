"""The words by which servers refuse a member of a request, of the libraries by which most check them (pydantic, serde,
Go, JSON Schema) and of OpenAI.

What is learnt from them holds for every later request to the model. So only the refusal of the member itself counts:
not that of one of its values ("Unsupported value: …", "unknown variant …"), of a member inside of it, or under a
condition ("is not allowed unless …")."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NOUN = (
    r"(?:(?:request|body|keyword)\s+)?"
    r"(?:param(?:eter)?|field|argument|property|properties|key|input|member|option|name|setting)(?:s|\(s\))?"
)
_UNKNOWN = r"(?:un(?:known|recogni[sz]ed|expected|supported)|invalid|extra)"
_NOT = r"not\s+(?:supported|permitted|allowed|accepted)"
_EXTRA = rf"extra[_ ](?:forbidden|(?:inputs?|fields?)\s+(?:are\s+)?{_NOT})"

_PLACE = (
    r"(?:[\w./:'\"`-]+\s+){0,3}"
    r"(?:models?|api|endpoints?|servers?|version|deployment|engine|provider|service|backend|request|body)\b"
)
_CONDITION = rf"(?:unless|when|while|if|until|except|without|together|combination)\b|(?:for|with|in)\s+(?!{_PLACE})"
_IN_SENTENCE = r"(?:[^.;]|\.(?=\S))"
_IN_LINE = r"(?:[^.;\n]|\.(?=\S))"
"""Ends where `_FIRST` begins, so that no character is looked at from two places."""
_FIRST = r"(?:\A|(?<=[.;]\s)|(?<=\n))(?!(?:when|while|if|unless|for|with|without|in)\s)"
_LAST = rf"(?!{_IN_SENTENCE}{{0,100}}?\b(?:{_CONDITION}))"


def match_refusal(
    names: Iterable[str], others: str = "(?!)", *, is_nested: bool = False, except_in: str = ""
) -> re.Pattern[str]:
    """Matches an error that refuses a member of one of these names, or that matches `others`. The names are those of
    members of the request, or paths to inner ones (`a.b`); with `is_nested`, of members at any depth, except in members
    whose name ends in `except_in`."""
    either = "|".join(re.escape(name) for name in sorted(names))
    outside = rf"(?<!{re.escape(except_in)}\.)" if except_in else ""
    before = rf"(?<![\w-]){outside}" if is_nested else r"(?<![\w.\]/>-])(?:(?:body|request|\$)(?:\.|\s*->\s*))?"
    named = rf"{before}(?:{either})(?![\w-]|\.\w|\[|/\w|\s*->)"
    further = r"(?:[\w.]+[\"'`]?\s*(?:,|and|or)\s*[\"'`]?){0,8}?"
    way = r"[^\])]{0,120}?" if is_nested else r"(?:[\"']body[\"']\s*,\s*)?"
    location = rf"loc[\"']?\s*[:=]\s*[\[(]\s*{way}[\"'](?:{either})[\"']\s*,?\s*[\])]"
    # As in "Unsupported parameter: 'x'", or in "Argument not supported on this model: x".
    refusal_before_name = (
        rf"\b(?:{_UNKNOWN}\s+{_NOUN}(?:\s+(?:supplied|provided|given|found|received))?|{_NOT}(?:\s+[\w-]+){{0,4}}\s*[:(])"
        rf"\s*[:(]?\s*[\"'`]?{further}{named}"
    )
    # As in "x: Extra inputs are not permitted", or in "`x` and `y` are not supported".
    refusal_after_name = (
        rf"{named}[\"'`]?\s*(?:(?:,|and|or)\s*[\"'`]?[\w.]+[\"'`]?\s*){{0,8}}?[:,]?\s*(?:{_NOUN}\s+)?"
        rf"(?:(?:is|are|was|were)\s+)?(?:(?:currently|an?)\s+)?"
        rf"(?:{_EXTRA}|{_NOT}|{_UNKNOWN}\s+{_NOUN}\b|un(?:known|recogni[sz]ed|expected|supported)(?!\s+\w|\w))"
    )
    located = rf"{_EXTRA}.{{0,40}}?{location}|{location}.{{0,40}}?{_EXTRA}"
    sentence = rf"{_FIRST}{_IN_LINE}{{0,1000}}?(?:{refusal_before_name}|{refusal_after_name}|{located}){_LAST}"
    for space, few in ((r"\s*", r"\s{0,3}"), (r"\s+", r"\s{1,3}")):
        sentence = sentence.replace(space, few)  # long runs of them would take seconds
    return re.compile(rf"(?is:{sentence})|{others}")
