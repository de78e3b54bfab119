"""What tokens cost: `[[prices]]` of the configuration, and the cost of a call by it.

Money is counted in whole billionths of the currency that the prices are in, so that sums are exact. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, cast

from daemon.config_values import ConfigInvalid

# More models than anybody asks.
PRICES_MAX: Final = 256
# A million tokens for a million is a slip of the pen.
PRICE_MAX: Final = 1e6
NANO: Final = 1_000_000_000
PER_TOKENS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs per million tokens. `cached`: prompt tokens that the provider had read before; None as
    `prompt`."""

    model: str
    prompt: float = 0.0
    cached: float | None = None
    completion: float = 0.0


class Prices:
    """The price table."""

    def __init__(self, prices: tuple[Price, ...] = ()) -> None:
        """Of two prices of one model the last counts; `read_prices` refuses them."""
        self._prices = {each.model: each for each in prices}

    def knows(self, model: str) -> bool:
        """Whether the table has a price for this model; what others cost is counted as 0."""
        return model in self._prices

    def cost_nano(self, model: str, prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> int:
        """Billionths that a call cost, rounded to a whole one; 0 for a model without a price.

        `cached_tokens` are a part of `prompt_tokens`, as servers count them. Numbers that cannot be, which servers
        do report, count as the nearest that can.
        """
        price = self._prices.get(model)
        if price is None:
            return 0
        prompt_tokens = max(0, prompt_tokens)
        cached_tokens = min(max(0, cached_tokens), prompt_tokens)
        cached = price.prompt if price.cached is None else price.cached
        total = (
            (prompt_tokens - cached_tokens) * _nano(price.prompt)
            + cached_tokens * _nano(cached)
            + max(0, completion_tokens) * _nano(price.completion)
        )
        return (total + PER_TOKENS // 2) // PER_TOKENS


def read_prices(raw: object) -> tuple[Price, ...]:
    """The prices of a configuration file. Raises `ConfigInvalid` with a sentence that names the key."""
    if not isinstance(raw, list):
        raise ConfigInvalid("prices is a list: write [[prices]] and its keys below, for each model")
    listed = cast("list[object]", raw)
    if len(listed) > PRICES_MAX:
        raise ConfigInvalid(f"there are at most {PRICES_MAX} prices")
    found = tuple(_read_one(each) for each in listed)
    seen: set[str] = set()
    for each in found:
        if each.model in seen:
            raise ConfigInvalid(f"prices.model: {each.model} has two prices")
        seen.add(each.model)
    return found


def _read_one(raw: object) -> Price:
    if not isinstance(raw, Mapping):
        raise ConfigInvalid("prices is a list of tables: write [[prices]] and its keys below")
    table = cast("Mapping[str, object]", raw)
    known = [key.name for key in fields(Price)]
    for key in table:
        if key not in known:
            raise ConfigInvalid(f"unknown key prices.{key}; it may have {', '.join(known)}")
    model = table.get("model", "")
    if not isinstance(model, str) or not model:
        raise ConfigInvalid("prices.model names the model, as in models.chat_model")
    return Price(
        model,
        prompt=_read_amount(table, "prompt"),
        cached=_read_amount(table, "cached") if "cached" in table else None,
        completion=_read_amount(table, "completion"),
    )


def _read_amount(table: Mapping[str, object], key: str) -> float:
    value = table.get(key)
    # Not isinstance: True is an int.
    if type(value) not in (int, float) or not 0 <= cast("float", value) <= PRICE_MAX:
        raise ConfigInvalid(f"prices.{key} is what a million tokens cost: a number such as 0.15, or 0")
    return float(cast("float", value))


def _nano(amount: float) -> int:
    """Billionths of an amount. Prices have few digits, so rounding takes nothing away."""
    return round(amount * NANO)
