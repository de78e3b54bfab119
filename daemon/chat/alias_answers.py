"""Other names from what a model answered: believed only where a turn has both names and speaks of naming.

They are an extra of the answer: what is wrong with them costs no fact, and nobody is asked again for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, cast

from daemon.chat.answers import clean_text
from daemon.chat.json_text import JsonCut, JsonUnusable, read_all_json
from daemon.offline.aliases import ALIASES_MAX, SILENT_ROLES, find_aliases, is_name, stands_in
from events.memory import Alias
from projections.facts.labels import normalise_label
from projections.ports import ChunkText, TurnText

NAME_CHARS_MAX: Final = 64
_KEY: Final = "aliases"
# What models call the two.
_NAME_KEYS: Final = ("name", "label", "entity", "canonical", "full_name")
_ALIAS_KEYS: Final = ("alias", "aliases", "nickname", "other_name", "also")
# One of these stands in every sentence that gives somebody a name, in the languages people mostly write.
_NAMING: Final = re.compile(
    r"\bcall|\bname|\bknown\b|\balias|a\.?k\.?a\b|nick|\bshort for|for short|stands? for|\bi\.e\.|\bgo(?:es)? by|="
    r"|[(（\"“「『«]|nann|nenn|heiß|kurz|spitz|appel|surnom|nomm|llam|apod|conoc|chiam|sopran|cham[ao]|apelid|зовут|зову|назыв"
    r"|прозв|он же|она же|叫|名|号|號|称|稱|喊|呼|별명|부르|불러|이름",
    re.IGNORECASE,
)


def read_aliases(text: str, chunk: ChunkText) -> tuple[Alias, ...]:
    """The aliases of an answer that the chunk's turns bear out, none when they cannot be read."""
    try:
        groups = read_all_json(text, lambda value: isinstance(value, dict))
    except (JsonCut, JsonUnusable):
        return ()
    pairs = [pair for group in groups for value in group for pair in _pairs_in(value)]
    found = (_borne_out(*pair, chunk.turns) for pair in pairs[: 4 * ALIASES_MAX])
    return join_aliases(each for each in found if each is not None)


def all_aliases(chunk: ChunkText, answered: Sequence[Alias]) -> tuple[Alias, ...]:
    """What rules find in the turns, and what a model found besides."""
    return join_aliases((*find_aliases(chunk.turns), *answered))


def join_aliases(aliases: Iterator[Alias] | Sequence[Alias]) -> tuple[Alias, ...]:
    """Each pair of names once, in whichever order it was given, at most `ALIASES_MAX`."""
    found: dict[frozenset[str], Alias] = {}
    for each in aliases:
        found.setdefault(frozenset((normalise_label(each.label), normalise_label(each.alias))), each)
    return tuple(found.values())[:ALIASES_MAX]


def _pairs_in(value: object) -> Iterator[tuple[str, str]]:
    """Pairs under the key: [{"name": ..., "alias": ...}], [["...", "..."]] or {"name": ["alias"]}."""
    if not isinstance(value, dict):
        return
    listed = {key.casefold(): each for key, each in cast("dict[str, object]", value).items()}.get(_KEY)
    if isinstance(listed, dict):
        fields = cast("dict[str, object]", listed)
        listed = [{"name": name, "alias": alias} for name, alias in fields.items()]
    for each in cast("list[object]", listed) if isinstance(listed, list) else []:
        match each:
            case [str() as name, str() as alias]:
                yield name, alias
            case dict():
                yield from _pairs_of(cast("dict[str, object]", each))
            case _:
                pass


def _pairs_of(raw: dict[str, object]) -> Iterator[tuple[str, str]]:
    fields = {key.casefold(): field for key, field in raw.items()}
    name = next((fields[key] for key in _NAME_KEYS if isinstance(fields.get(key), str)), None)
    aliases = next((fields[key] for key in _ALIAS_KEYS if fields.get(key)), None)
    for alias in cast("list[object]", aliases) if isinstance(aliases, list) else [aliases]:
        if isinstance(name, str) and isinstance(alias, str):
            yield name, alias


def _borne_out(name: str, alias: str, turns: Sequence[TurnText]) -> Alias | None:
    """The alias with the first turn that has both names, the first one perhaps as its speaker's."""
    label, other = (" ".join(clean_text(each).split()) for each in (name, alias))
    folded = normalise_label(label), normalise_label(other)
    if folded[0] == folded[1] or not all(map(_looks_like_name, (label, other), folded)):
        return None
    for position, turn in enumerate(turns):
        said = TurnText(turn.role, None, turn.said_at, turn.text)
        if (
            turn.role not in SILENT_ROLES
            and stands_in(other, said)
            and stands_in(label, turn)
            and _NAMING.search(turn.text)
        ):
            return Alias(label, other, position)
    return None


def _looks_like_name(written: str, folded: str) -> bool:
    """Whether it is no role, date or number, and has a capital where its script has them."""
    return (
        len(written) <= NAME_CHARS_MAX
        and is_name(folded)
        and (written != written.lower() or written.upper() == written)
    )
