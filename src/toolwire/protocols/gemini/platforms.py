"""Gemini at Vertex AI: the same requests; the base URL has the project and its own version of the API.

Captured from google-genai 3.3.0 (`Client(vertexai=True)`). November 2026."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.core.codec import Platform
from toolwire.protocols.gemini.http import PASSTHROUGH_ENDPOINTS

PLATFORMS: Mapping[str, Platform] = {
    "vertex": Platform(
        http={
            "provider_models_path": "",
            "passthrough_endpoints": tuple(one for one in PASSTHROUGH_ENDPOINTS if one.model_place == "path"),
        },
        supports_model=lambda model, tools: model.startswith(("gemini-", "gemma-", "publishers/google/")),
    )
}
