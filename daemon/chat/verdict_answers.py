"""Verdicts on pairs from what a model answered: each pair has exactly one, or the answer is of no use.

Small models leave the numbers out, use them as keys or answer in a list of words: what can only mean one thing is
taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, cast

from daemon.chat.answers import clean_text
from daemon.chat.fact_answers import AnswerInvalid
from daemon.chat.json_text import read_json
from events.decisions import PairVerdict

_VERDICTS: Final = {verdict.value: verdict for verdict in PairVerdict}
_FORMS: Final = "same, supersedes, contradicts or different"
_DIGITS = re.compile(r"\d{1,3}", re.ASCII)


def read_verdicts(text: str, count: int) -> tuple[PairVerdict, ...]:
    """The verdicts on so many pairs, in their order. Raises `AnswerInvalid` and what `read_json` raises."""
    value = read_json(text, lambda each: _entries_in(each) is not None)
    entries = _entries_in(value)
    if entries is None:
        raise AnswerInvalid('it has no list under the key "verdicts"')
    found: dict[int, PairVerdict] = {}
    for n, verdict in _number(entries):
        if not 1 <= n <= count:
            raise AnswerInvalid(f"it names a pair that is not there; their n go from 1 to {count}")
        if found.setdefault(n, verdict) is not verdict:
            raise AnswerInvalid(f"it has two verdicts on pair {n}")
    for n in range(1, count + 1):
        if n not in found:
            raise AnswerInvalid(f"it has no verdict on pair {n}")
    return tuple(found[n] for n in range(1, count + 1))


def _entries_in(value: object) -> list[tuple[object, object]] | None:
    """The number and the verdict of each entry, as they came; None where there are no such entries."""
    if isinstance(value, dict):
        raw = {key.casefold(): each for key, each in cast("dict[str, object]", value).items()}
        for key in ("verdicts", "pairs", "results", "answers"):
            if isinstance(raw.get(key), list | dict):
                return _entries_in(raw[key])
        if "verdict" in raw:
            return [_entry(raw)]
        return list(raw.items()) if raw and all(map(_DIGITS.search, raw)) else None
    if not isinstance(value, list):
        return None
    listed = cast("list[object]", value)
    if all(isinstance(each, str) for each in listed):
        return [(None, each) for each in listed]
    if not all(isinstance(each, dict) for each in listed):
        return None
    return [_entry(cast("dict[str, object]", each)) for each in listed]


def _entry(raw: Mapping[str, object]) -> tuple[object, object]:
    numbers = (raw[key] for key in ("n", "pair", "number", "id") if key in raw)
    return next(numbers, None), raw.get("verdict", raw.get("label", raw.get("answer")))


def _number(entries: Iterable[tuple[object, object]]) -> list[tuple[int, PairVerdict]]:
    """Each with its number: the one it came with, or its place where none has one."""
    read = [(_read_number(number), _read_verdict(verdict)) for number, verdict in entries]
    if all(number is None for number, _ in read):
        return [(n, verdict) for n, (_, verdict) in enumerate(read, start=1)]
    if any(number is None for number, _ in read):
        raise AnswerInvalid("an entry has no n")
    return [(number, verdict) for number, verdict in read if number is not None]


def _read_number(value: object) -> int | None:
    if isinstance(value, str) and (digits := _DIGITS.search(value)):
        return int(digits[0])
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _read_verdict(value: object) -> PairVerdict:
    if isinstance(value, dict):
        value = cast("dict[str, object]", value).get("verdict")
    word = clean_text(value).strip(" .\"'*").casefold() if isinstance(value, str) else ""
    if word not in _VERDICTS:
        raise AnswerInvalid(f"a verdict is none of {_FORMS}")
    return _VERDICTS[word]
