"""How a call looks from outside: the model and the verb are in the path, the body has neither."""

from __future__ import annotations

from toolwire.room import Http

COLLECTIONS = ("models/", "tunedModels/", "publishers/", "projects/")


def path(model: str, stream: bool) -> str:
    resource = model if model.startswith(COLLECTIONS) else f"models/{model}"
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/v1beta/{resource}:{verb}"


HTTP = Http(path=path, model_in_body=False, stream_in_body=False)
