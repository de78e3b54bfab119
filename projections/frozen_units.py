"""Units, groups and the policy of a user as rows, and back."""

from __future__ import annotations

from collections.abc import Iterator

from events.eventtree import Policy
from events.memory import FactRole
from projections.eventtree.units import Group, Units
from projections.frozen import Reader, Section, Writer


def freeze_units(units: Units, w: Writer) -> Iterator[Section]:
    """The sections of the EventTree."""
    yield "unit_of", ((w.id(fact), w.id(unit)) for fact, unit in units.unit_of.items())
    yield (
        "groups",
        (
            (
                w.id(each.id),
                w.id(each.unit),
                w.ids(each.members),
                each.seq,
                each.length,
                each.loss,
                each.extractive,
            )
            for each in units.groups.values()
        ),
    )
    yield "parked_merges", ((group,) for group in units.parked)
    yield "apart", ((w.id(fact),) for fact in units.apart)
    policy = units.policy
    never_merged = None if policy.never_merged is None else [role.value for role in policy.never_merged]
    numbers = (policy.online, policy.ratio, policy.member_cap, policy.time_bonus, policy.min_age_s)
    yield "policy", ((*numbers, never_merged),)


def thaw_units(r: Reader, units: Units) -> Iterator[None]:
    """Fill what holds nothing yet."""
    for batch in r.batches("unit_of"):
        units.unit_of.update((r.id(fact), r.id(unit)) for fact, unit in batch)
        yield
    for batch in r.batches("groups"):
        for number, unit, members, *rest in batch:
            group = Group(r.id(number), r.id(unit), tuple(r.ids(members)), *rest)
            units.groups[group.id] = group
            units.group_of.update(dict.fromkeys(group.members, group.id))
        yield
    for batch in r.batches("parked_merges"):
        units.parked.update((group, None) for (group,) in batch)
    for batch in r.batches("apart"):
        units.apart.update((r.id(fact), None) for (fact,) in batch)
    for batch in r.batches("policy"):
        for online, ratio, member_cap, time_bonus, min_age_s, never_merged in batch:
            roles = None if never_merged is None else tuple(FactRole(role) for role in never_merged)
            units.policy = Policy(online, ratio, member_cap, time_bonus, min_age_s, roles)
