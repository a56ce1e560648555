"""Asks a model once. The official clients do the retrying: time-outs, broken connections, 408, 409, 429 and
5xx, each time with a longer pause or the one the server asks for.
"""

from __future__ import annotations

import functools
import os
import time
from types import ModuleType
from typing import Any

from assay.llm.answers import KEYS, Answer, Settings, Spoken
from assay.records import UserError

REFUSED = (400, 413, 422)
"""This prompt will not be answered, another may: too long, filtered, malformed."""
_NO_KEY = "none"
MOST_TOKENS = 1 << 40


def complete(settings: Settings, prompt: Spoken) -> Answer:
    """The model's answer; UserError where there will be none to any prompt. May be called from threads."""
    sdk = _sdk(settings.provider)
    start = time.monotonic()
    try:
        text, tokens_in, tokens_out = _ASK[settings.provider](_client(settings), settings, prompt)
        refusal = "" if text.strip() else "the answer is empty"
    except sdk.APIStatusError as error:
        if error.status_code not in REFUSED:
            raise UserError(f"{_where(settings)}: {_short(error)}{_advice(error, settings)}") from error
        text, tokens_in, tokens_out, refusal = "", None, None, _short(error)
    except sdk.APIConnectionError as error:
        raise UserError(f"{_where(settings)} does not answer ({_short(error)}): is it running?") from error
    except (sdk.APIError, ValueError) as error:  # what it said cannot be read
        raise UserError(f"{_where(settings)} speaks no protocol known here: {_short(error)}") from error
    cost_usd = settings.cost_usd(tokens_in, tokens_out)
    return Answer(text, refusal, tokens_in, tokens_out, time.monotonic() - start, cost_usd)


_Said = tuple[str, int | None, int | None]
"""Text, tokens in, tokens out; None where the server does not tell."""


def _ask_openai(client: Any, settings: Settings, prompt: Spoken) -> _Said:
    # Servers that follow the protocol know the old name, the provider's newer models only the new one.
    limit = "max_tokens" if settings.url else "max_completion_tokens"
    said = client.chat.completions.create(
        model=settings.model,
        messages=[
            {"role": "system", "content": prompt.system},
            {"role": "user", "content": prompt.user},
        ],
        **{limit: settings.max_tokens},
        **_temperature(settings),
    )
    choices = getattr(said, "choices", None)
    message = getattr(choices[0], "message", None) if isinstance(choices, list) and choices else None
    if message is None:
        raise ValueError("no chat completion")
    usage = getattr(said, "usage", None)
    text = _text(getattr(message, "content", None))
    return text, _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")


def _ask_anthropic(client: Any, settings: Settings, prompt: Spoken) -> _Said:
    said = client.messages.create(
        model=settings.model,
        system=prompt.system,
        messages=[{"role": "user", "content": prompt.user}],
        max_tokens=settings.max_tokens,
        timeout=settings.timeout_s,  # else it refuses what may take long without streaming
        **_temperature(settings),
    )
    blocks = getattr(said, "content", None)
    if not isinstance(blocks, list):
        raise ValueError("no message")
    text = "".join(_text(getattr(block, "text", None)) for block in blocks)
    usage = getattr(said, "usage", None)
    return text, _count(usage, "input_tokens"), _count(usage, "output_tokens")


_ASK = {"openai": _ask_openai, "anthropic": _ask_anthropic}


def _temperature(settings: Settings) -> dict[str, Any]:
    """Beside the body: newer clients have no argument for it, older servers want it."""
    return {} if settings.temperature is None else {"extra_body": {"temperature": settings.temperature}}


def _text(content: Any) -> str:
    """UTF-8 cannot write what JSON can escape: half of a surrogate pair."""
    return content.encode("utf-8", "replace").decode() if isinstance(content, str) else ""


def _count(usage: Any, name: str) -> int | None:
    """Servers may leave it out, and some say anything."""
    value = getattr(usage, name, None)
    return value if isinstance(value, int) and 0 <= value <= MOST_TOKENS else None


@functools.cache
def _client(settings: Settings) -> Any:
    key = os.environ.get(KEYS[settings.provider], "")
    if not key and not settings.url:
        raise UserError(f"{settings.label} needs a key: set {KEYS[settings.provider]}")
    sdk = _sdk(settings.provider)
    make = sdk.OpenAI if settings.provider == "openai" else sdk.Anthropic
    address = {"base_url": settings.url} if settings.url else {}
    limits = {"timeout": settings.timeout_s, "max_retries": settings.retries}
    return make(api_key=key or _NO_KEY, **address, **limits)


def _sdk(provider: str) -> ModuleType:
    """Imported here: they take a second, and are an extra."""
    try:
        if provider == "openai":
            import openai as sdk
        else:
            import anthropic as sdk
    except ImportError as error:
        raise UserError(f"the {provider} client is missing: pip install 'assay[models]'") from error
    return sdk


def _where(settings: Settings) -> str:
    return f"{settings.label} at {settings.url}" if settings.url else settings.label


def _short(error: Exception) -> str:
    cause = error.__cause__
    text = " ".join(f"{error} {cause if cause is not None else ''}".split())
    return text if len(text) <= 300 else f"{text[:300]}..."


def _advice(error: Any, settings: Settings) -> str:
    if error.status_code in (401, 403):
        return f" (is {KEYS[settings.provider]} right?)"
    if error.status_code == 404:
        return " (is the model's name right, and the address?)"
    if error.status_code == 429:
        return f" (still limited after {settings.retries} tries: the same command goes on later)"
    return ""
