"""Other names that a turn itself gives somebody or something: "Robert, who everyone calls Bob".

Precision first: what is not said in so many words joins nothing. A role is no name: there may be two sisters, and
"my sister" is somebody else's when another one speaks. Nor is what is asked, denied or wished for.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from daemon.offline.alias_phrases import (
    MY_NAME,
    MYSELF,
    OR,
    OR_TAIL,
    ROLE_WORDS,
    SAME,
    SHORT_FORMS,
    THEN_ALIAS,
    THEN_LABEL,
)
from daemon.offline.aliases_east import find_eastern
from daemon.offline.entities import Name, find_names
from daemon.offline.sentences import split_sentences
from events.memory import Alias
from projections.facts.labels import can_name, normalise_label, occurs_in

if TYPE_CHECKING:
    from projections.ports import TurnText

# Instructions and output of tools are not what somebody said.
SILENT_ROLES: Final = frozenset({"system", "tool"})
# A chunk introduces few people; more is a list that somebody pasted.
ALIASES_MAX: Final = 8
# Pairs of a turn that are looked at, repetitions among them.
PAIRS_MAX: Final = 64
# As much of a turn is looked at; introductions stand in short ones.
TEXT_CHARS_MAX: Final = 4_000
# How far from a name a denial or one more name is looked for: some words.
NEAR_CHARS_MAX: Final = 80

_CUES: Final = re.compile(
    rf"(?P<alias>{THEN_ALIAS})|(?P<label>{THEN_LABEL})|(?P<same>{SAME})|(?P<tail>{OR})|(?P<brackets> ?\()",
    re.IGNORECASE,
)
_SELF: Final = re.compile(MYSELF, re.IGNORECASE)
_OR_TAIL: Final = re.compile(OR_TAIL, re.IGNORECASE)
_INTRODUCED: Final = re.compile(MY_NAME, re.IGNORECASE)
_CALLED_QUOTED: Final = re.compile(r"\b(?:calls?|called|nicknamed|nicknames?) $", re.IGNORECASE)
_LEFT: Final = re.compile(r"[\"”’)»]*")
_RIGHT: Final = re.compile(r"[ ]*(?:[Tt]he |[Dd](?:er|ie|as) |[Ll][ae] |[Ee]l )?[ ]?[\"“„«'‘(]*")
_DENIED: Final = re.compile(
    r"\b(?:not|never|nobody|no one|stop|stopped|don't|didn't|doesn't|can't|cannot|hates?|why|if|wish|would|could"
    r"|used to|no longer|did|does|do you|nicht|nie|niemand|wenn|würde|ne|pas|jamais|personne|si|no|nunca|nadie)\b"
    r"(?:\W+\w+){0,4}\W*$",
    re.IGNORECASE,
)
_AKA: Final = re.compile(r"\ba\.k\.a\.", re.IGNORECASE)  # its stops would end a sentence
_ASKED: Final = re.compile(r"[?？]['\"”’)\]]*$")
# Another name beside the last: they are counted up, and none of them is the other.
_LISTED: Final = re.compile(r"['\"”’)]*(?:,? (?:and|or|und|oder|et|ou|y|o|&) |, )(?=[^\W\d_])")


class Pair(NamedTuple):
    """A name and its alias as they are written."""

    label: str
    alias: str


def find_aliases(turns: Sequence[TurnText]) -> tuple[Alias, ...]:
    """What the turns of a chunk say about who is called what, each pair once, at most `ALIASES_MAX`."""
    found: dict[tuple[str, str], Alias] = {}
    for position, turn in enumerate(turns):
        pairs = _in_turn(turn) if turn.role not in SILENT_ROLES else ()
        for label, alias in islice(pairs, PAIRS_MAX):
            pair = normalise_label(label), normalise_label(alias)
            if pair[0] != pair[1] and all(map(is_name, pair)):
                found.setdefault(pair, Alias(label, alias, position))
    return tuple(found.values())[:ALIASES_MAX]


def is_name(label: str) -> bool:
    """Whether a label in normal form may be one of somebody's names: no role, pronoun, number or date."""
    return can_name(label) and label not in ROLE_WORDS and label.removeprefix("my ") == label


def stands_in(label: str, turn: TurnText) -> bool:
    """Whether a turn has a name in its words, or its speaker has it."""
    folded = normalise_label(label)
    speaker = normalise_label(turn.speaker or "")
    return bool(folded) and (folded == speaker or occurs_in(folded, normalise_label(turn.text)))


def _in_turn(turn: TurnText) -> Iterator[Pair]:
    text = _AKA.sub("aka", unicodedata.normalize("NFC", turn.text[:TEXT_CHARS_MAX]))
    introduced = ""
    for sentence in split_sentences(text):
        if _ASKED.search(sentence):
            continue
        yield from (Pair(*pair) for pair in find_eastern(sentence, turn.speaker))
        plain = sentence.replace("’", "'").replace("\xa0", " ")
        names = find_names(plain)
        if not names:
            continue
        for one in _after(plain, names, _INTRODUCED):
            introduced = one.label
            yield from _spoken_by(turn.speaker, introduced)
        yield from _between(plain, names)
        yield from _in_full_names(plain, names)
        for alias in _after(plain, names, _SELF):
            label = introduced or turn.speaker or ""
            if label:
                yield Pair(label, alias.label)


def _between(text: str, names: Sequence[Name]) -> Iterator[Pair]:
    """Pairs of names with one of our phrases between them and nothing else."""
    by_start = _by_start(names)
    for left in names:
        at = _end(_LEFT, text, left.end)
        for cue in _cues_at(text, at):
            right = _name_at(by_start, _end(_RIGHT, text, cue.end()))
            pair = None if right is None or right is left else _read_cue(text, cue, left, right)
            if pair is not None and right is not None and not _is_denied(text, left.start):
                for form in (right.titled, left.titled):
                    if form:
                        yield Pair(pair.label, form)
                yield pair
                break


def _cues_at(text: str, at: int) -> Iterator[re.Match[str]]:
    cue = _CUES.match(text, at)
    if cue is not None:
        yield cue
        shorter = _CUES.match(text, at, cue.end() - 1)
        if shorter is not None:
            yield shorter


def _read_cue(text: str, cue: re.Match[str], left: Name, right: Name) -> Pair | None:
    kind = cue.lastgroup
    if kind == "alias" and "=" in cue.group():
        pair = _by_length(left, right)
        if not _explains(pair):
            return None
    elif kind == "alias":
        pair = Pair(left.label, right.label)
    elif kind == "label":
        pair = Pair(right.label, left.label)
    elif kind == "same":
        pair = _by_length(left, right)
    elif kind == "tail" and _OR_TAIL.match(text, right.end):
        return Pair(left.label, right.label)
    elif kind in ("tail", "brackets") and "(" in cue.group() and text[right.end : right.end + 1] == ")":
        pair = _by_length(left, right)
        return pair if _explains(pair) else None
    else:
        return None
    listed = _LISTED.match(text, right.end)
    follows = listed is not None and find_names(text[listed.end() : listed.end() + NEAR_CHARS_MAX])[:1]
    return None if follows and follows[0].start == 0 else pair


def _in_full_names(text: str, names: Sequence[Name]) -> Iterator[Pair]:
    """Robert "Bob" Smith, and: we call Robert "Bob"."""
    for left, nick in pairwise(names):
        if (
            re.fullmatch(r" [\"“„«'‘(]", text[left.end : nick.start])
            and text[nick.end : nick.end + 1] in "\"”“»'’)"
        ):
            after = text[nick.end + 1 : nick.end + 3]
            surname = after[:1] == " " and after[1:].isupper() and text[nick.end] != ")"
            if surname or (_CALLED_QUOTED.search(text, 0, left.start) and text[nick.end] != ")"):
                yield Pair(left.label, nick.label)


def _after(text: str, names: Sequence[Name], cue: re.Pattern[str]) -> Iterator[Name]:
    """The names right behind a phrase that nobody denies."""
    by_start = _by_start(names)
    for match in cue.finditer(text):
        name = by_start.get(_end(_RIGHT, text, match.end()))
        if name is not None and not _is_denied(text, match.start()):
            yield name


def _is_denied(text: str, at: int) -> bool:
    """Whether the words before a place deny, doubt or wish for what stands there."""
    return _DENIED.search(text, max(0, at - NEAR_CHARS_MAX), at) is not None


def _by_start(names: Sequence[Name]) -> dict[int, Name]:
    """Names by where they begin, with their title and without."""
    return {start: name for name in names for start in (name.outer, name.start)}


def _name_at(by_start: dict[int, Name], at: int) -> Name | None:
    """The name that begins here; or the rest of one that a phrase became part of: die Kurzform von Robert."""
    if at in by_start:
        return by_start[at]
    inside = next((name for name in by_start.values() if name.start < at < name.end), None)
    if inside is None or not inside.label[at - inside.start - 1].isspace():
        return None
    rest = inside.label[at - inside.start :]
    return Name(rest, at, inside.end, at, "") if rest[:1].isupper() else None


def _spoken_by(speaker: str | None, introduced: str) -> Iterable[Pair]:
    """Anna says that she is Anna Müller; that she is Bob she may have copied."""
    if not speaker:
        return ()
    one, other = (set(normalise_label(each).split()) for each in (speaker, introduced))
    if one < other:
        return (Pair(introduced, speaker),)
    return (Pair(speaker, introduced),) if other < one else ()


def _by_length(one: Name, other: Name) -> Pair:
    return Pair(one.label, other.label) if len(one.label) >= len(other.label) else Pair(other.label, one.label)


def _explains(pair: Pair) -> bool:
    """Whether brackets hold the same name: its initials, a part of it, its begin or a usual short form.

    Paris (France) are two.
    """
    label, alias = normalise_label(pair.label), normalise_label(pair.alias)
    words = re.findall(r"\w+", label)
    short = alias.replace(".", "")
    if len(words) > 1 and short in (
        "".join(word[0] for word in words),
        "".join(word[0] for word in words if len(word) > 3),
    ):
        return True
    if set(alias.split()) < set(label.split()):
        return True
    same_script = len(words) == 1 and len(short) >= 3 and label.startswith(short)
    return same_script or short in SHORT_FORMS.get(words[0], ())


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()
