"""Images for models that cannot see: a text of another model replaces each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from toolwire.core.ir import Media, Part, Request, Result, Text, replace_fields, source_path, with_parts, with_turns
from toolwire.core.losses import Ledger


class ImageDescription(Struct, frozen=True):
    """What another model says about an image."""

    model: str
    text: str = ""
    problem: str = ""
    """Why there is no text."""


def image_content(media: Media) -> str:
    """What identifies an image: its data or its URL. "" for a file that only its own provider has."""
    return media.data or media.url


def find_images(request: Request) -> tuple[Media, ...]:
    """The images of the conversation that can be described, each once."""
    return find_images_in(part for turn in request.turns for part in turn.parts)


def find_images_in(parts: Iterable[Part]) -> tuple[Media, ...]:
    return tuple({image_content(media): media for media in _iterate_images(parts)}.values())


def _iterate_images(parts: Iterable[Part]) -> Iterator[Media]:
    for part in parts:
        if isinstance(part, Result):
            yield from _iterate_images(part.content)
        elif isinstance(part, Media) and part.kind == "image" and image_content(part):
            yield part


def replace_images(request: Request, descriptions: Mapping[str, ImageDescription], ledger: Ledger) -> Request:
    """The request with a text for each image that `descriptions` has, by its content."""
    turns = [with_parts(turn, replace_images_in(turn.parts, descriptions, ledger)) for turn in request.turns]
    return with_turns(request, turns)


def replace_images_in(
    parts: Sequence[Part], descriptions: Mapping[str, ImageDescription], ledger: Ledger
) -> list[Part]:
    return [_replace_image(part, descriptions, ledger) for part in parts]


def _replace_image(part: Part, descriptions: Mapping[str, ImageDescription], ledger: Ledger) -> Part:
    if isinstance(part, Result):
        content = tuple(replace_images_in(part.content, descriptions, ledger))
        is_changed = any(new is not old for new, old in zip(content, part.content, strict=True))
        return replace_fields(part, content=content, value=None) if is_changed else part
    if not isinstance(part, Media) or part.kind != "image":
        return part
    description = descriptions.get(image_content(part))
    if description is None:
        return part
    if description.problem:
        ledger.note("media-dropped", source_path(part), "an image was left out", description.problem)
        return Text("[an image was left out: it could not be described]", cache=part.cache)
    ledger.note("media-described", source_path(part), f"an image became a text of `{description.model}`")
    return Text(f"[image described by {description.model}: {description.text}]", cache=part.cache)
