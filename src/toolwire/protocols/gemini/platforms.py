"""Gemini at Vertex AI: the same requests; the base URL has the project and its own version of the API.

Captured from google-genai 3.3.0 (`Client(vertexai=True)`). November 2026."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.core.codec import Platform

PLATFORMS: Mapping[str, Platform] = {
    "vertex": Platform(
        http={"provider_models_path": "", "passthrough_endpoints": ()},
        supports_model=lambda model, tools: model.startswith(("gemini-", "gemma-", "publishers/google/")),
    )
}
