"""Names of one entity: what turns said ("Robert, who everyone calls Bob"), and which names are one by that.

A link says that an alias stands for a label. Nothing is joined but by links; one that is said of two different
names counts for neither, for nobody knows which of them is meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from sys import intern
from typing import NamedTuple

from events.memory import FactsExtracted, Pointer
from projections.facts.labels import can_name, normalise_label

# More names than anybody has: an answer that calls all things one must not make one entity of them.
NAMES_MAX = 16
# Links of one extraction; a chunk introduces few people.
LINKS_MAX = 16


class Link(NamedTuple):
    """A turn gave another name to what has this label, both in normal form; links sort by where they were said.

    Not by when they were read: answers of models come in any order.
    """

    turn: int  # its seq
    n: int  # place among the aliases of its extraction
    label: str
    alias: str
    seq: int  # of that extraction

    @property
    def pointer(self) -> Pointer:
        """Where the log names it; aliases are counted downwards from -1, facts upwards from 0."""
        return Pointer(self.seq, -1 - self.n)


class Aliases:
    """The names of one user's entities. What it knows depends on the links alone, not on their order."""

    def __init__(self) -> None:
        # Each said pair once, where it was said first; and by both of its names.
        self._links: dict[tuple[str, str], Link] = {}
        self._linked: dict[str, set[str]] = {}
        # Names that are not their entity's first, and all names of each entity that has several.
        self._canonical: dict[str, str] = {}
        self._names: dict[str, tuple[str, ...]] = {}

    def add(self, links: Iterable[Link]) -> set[str]:
        """Take what extractions found; the names whose entity may be another now."""
        changed: set[str] = set()
        for link in links:
            pair = link.label, link.alias
            known = self._links.get(pair)
            if known is None or link < known:
                self._links[pair] = link
                self._linked.setdefault(link.label, set()).add(link.alias)
                self._linked.setdefault(link.alias, set()).add(link.label)
                changed |= self._reach(link.label)
        if changed:
            self._settle(changed)
        return changed

    def canonical(self, name: str) -> str:
        """The name under which an entity is known: the label of the earliest link that counts, else this one."""
        return self._canonical.get(name, name)

    def names_of(self, name: str) -> tuple[str, ...]:
        """All names of the entity that has this one, sorted."""
        return self._names.get(self.canonical(name), (name,))

    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """The names of each entity that has several, by the one under which it is known."""
        return self._names

    def links(self) -> Sequence[Link]:
        """All that was said, in the order of the log, whether it counts or not."""
        return sorted(self._links.values())

    def _reach(self, name: str) -> set[str]:
        """All names that links lead to from one."""
        reached, ahead = {name}, [name]
        while ahead:
            new = self._linked[ahead.pop()] - reached
            reached |= new
            ahead += new
        return reached

    def _settle(self, names: set[str]) -> None:
        """Find the entities among names that no link connects with others."""
        for name in names:
            self._canonical.pop(name, None)
            self._names.pop(name, None)
        links = sorted({self._links[pair] for name in names for pair in self._pairs(name)})
        for group in _join(links):
            first = next(link.label for link in links if link.label in group and link.alias in group)
            self._names[first] = tuple(sorted(group))
            self._canonical.update(dict.fromkeys(group - {first}, first))

    def _pairs(self, name: str) -> Iterator[tuple[str, str]]:
        return ((name, other) for other in self._linked[name] if (name, other) in self._links)


def read_links(seq: int, event: FactsExtracted) -> list[Link]:
    """The aliases that an extraction at a seq found, without what can be nobody's name."""
    found: list[Link] = []
    for n, each in enumerate(event.aliases[:LINKS_MAX]):
        label, alias = intern(normalise_label(each.label)), intern(normalise_label(each.alias))
        if label != alias and can_name(label) and can_name(alias) and 0 <= each.turn < len(event.turns):
            found.append(Link(event.turns[each.turn], n, label, alias, seq))
    return found


def _join(links: Sequence[Link]) -> list[set[str]]:
    """The names that are one, of those in links; names that are alone are left out.

    Links of an alias that means one thing count. One that is said of several names counts if these are one
    without it, and that may make other names one, so it is tried until nothing changes.
    """
    by_alias: dict[str, list[Link]] = {}
    for link in links:
        by_alias.setdefault(link.alias, []).append(link)
    group_of: dict[str, set[str]] = {}
    unclear = [each for each in by_alias.values() if not _are_compatible([link.label for link in each])]
    for link in links:
        if by_alias[link.alias] not in unclear:
            _unite(group_of, link)
    while True:
        cleared = [each for each in unclear if len({id(group_of.get(link.label, link)) for link in each}) == 1]
        if not cleared:
            break
        unclear = [each for each in unclear if each not in cleared]
        for link in sorted(link for each in cleared for link in each):
            _unite(group_of, link)
    return list({id(group): group for group in group_of.values() if len(group) > 1}.values())


def _unite(group_of: dict[str, set[str]], link: Link) -> None:
    one = group_of.setdefault(link.label, {link.label})
    other = group_of.setdefault(link.alias, {link.alias})
    if one is not other and len(one) + len(other) <= NAMES_MAX:
        one |= other
        group_of.update(dict.fromkeys(other, one))


def _are_compatible(labels: Sequence[str]) -> bool:
    """Whether labels may be more and less of one name: Robert, Robert Smith. Smith and Jones are two people."""
    words = sorted((set(label.split(" ")) for label in labels), key=len)
    return all(few <= many for few, many in pairwise(words))
