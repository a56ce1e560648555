"""What goes to a model and what comes back: plain data, so that it may be asked from anywhere."""

from __future__ import annotations

from dataclasses import dataclass

from assay.records import UserError

KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
"""Providers, and the variable each reads its key from."""
PER_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """Which model, and how it is asked. Keys are not part of it: they stay in the environment."""

    provider: str
    model: str
    url: str = ""
    """Of a server that speaks the same protocol; empty for the provider's own."""
    temperature: float | None = None
    """None leaves it to the provider: some models take no other than their own."""
    max_tokens: int = 16384
    timeout_s: float = 600.0
    retries: int = 10
    """Tries after the first where another may help; the client waits longer from one to the next."""
    price_in_usd: float | None = None
    """For a million tokens; None if unknown."""
    price_out_usd: float | None = None

    @property
    def label(self) -> str:
        return f"{self.provider}:{self.model}"

    def cost_usd(self, tokens_in: int | None, tokens_out: int | None) -> float | None:
        """None where price or tokens are not known: that is not nothing."""
        if self.price_in_usd is None or self.price_out_usd is None or tokens_in is None or tokens_out is None:
            return None
        return (tokens_in * self.price_in_usd + tokens_out * self.price_out_usd) / PER_TOKENS


@dataclass(frozen=True, slots=True)
class Spoken:
    """A prompt."""

    system: str
    user: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said, or why it would not."""

    text: str
    refusal: str
    """The endpoint's words where this prompt gets no answer; empty if there is one."""
    tokens_in: int | None
    """None where the server does not tell."""
    tokens_out: int | None
    seconds: float
    cost_usd: float | None


def read_settings(model: str, url: str = "", price: str = "", **others: object) -> Settings:
    """From what a person writes: `provider:name`, and `in/out` in dollars for a million tokens."""
    provider, _, name = model.partition(":")
    if provider not in KEYS or not name:
        raise UserError(f"{model!r} names no model: write provider:name, with one of {', '.join(KEYS)}")
    if url and not url.startswith(("http://", "https://")):
        raise UserError(f"{url!r} is no address of a server: write http://HOST:PORT/v1, say")
    price_in, price_out = _read_price(price) if price else (None, None)
    return Settings(provider, name, url, price_in_usd=price_in, price_out_usd=price_out, **others)  # type: ignore


def _read_price(text: str) -> tuple[float, float]:
    try:
        price_in, price_out = (float(part) for part in text.split("/"))
    except ValueError:
        price_in = price_out = -1.0
    if not (0 <= price_in < float("inf") and 0 <= price_out < float("inf")):
        raise UserError(f"{text!r} is no price: write IN/OUT in dollars for a million tokens, such as 3/15")
    return price_in, price_out
