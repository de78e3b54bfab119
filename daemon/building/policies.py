"""How far one user's memory is compressed: what is in force, whose it is, and saying otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Final

from daemon.asking.listings import UserParams, find_user
from daemon.building.worker import Worker
from daemon.memories import Memories
from daemon.untrusted import Params
from events.envelope import NewEvent, identify
from events.errors import InvalidInput
from events.eventtree import AS_CONFIGURED, Policy, PolicyChanged
from events.log import EventLog
from events.memory import FactRole
from events.time import Instant
from projections.eventtree.parameters import EventTreeParameters
from projections.memory import Memory

# A policy keeps ratio and time bonus in thousandths.
THOUSAND: Final = 1000
# Far beyond what anybody measured, and small enough for the log's integers.
TIME_BONUS_MAX: Final = 100
MEMBER_CAP_MAX: Final = 1_000_000
MIN_AGE_MAX_S: Final = 100 * 366 * 86_400


class PolicyParams(Params, frozen=True, kw_only=True):
    """Parameters of `units.set_policy`: what is given counts from now on, what is not stays as it is.

    `ratio` is the share of nodes that goes, `member_cap` the most facts of a group (0: no cap), `min_age_s` how
    long ago a fact must have been said, `never_merged` the kinds that stay by themselves. With `reset` all is as
    configured again first.
    """

    user_id: str
    online: bool | None = None
    ratio: float | None = None
    member_cap: int | None = None
    time_bonus: float | None = None
    min_age_s: float | None = None
    never_merged: list[str] | None = None
    reset: bool = False


@dataclass(frozen=True, slots=True)
class PolicyShown:
    """The values in force for a user. `set_by_user` names the user's own, the others are the daemon's.

    A `member_cap` of null is none. What `preset` "paper" rules out stays ruled out, whoever says otherwise.
    """

    preset: str
    online: bool
    ratio: float
    member_cap: int | None
    time_bonus: float
    min_age_s: float
    never_merged: list[str]
    set_by_user: list[str]


class Policies:
    """Shows and records how far users' memories are compressed."""

    def __init__(
        self,
        log: EventLog,
        memories: Memories,
        worker: Worker,
        parameters: EventTreeParameters,
        clock: Callable[[], Instant],
    ) -> None:
        self._log = log
        self._memories = memories
        self._worker = worker
        self._parameters = parameters
        self._clock = clock

    async def get(self, params: UserParams) -> PolicyShown:
        """What is in force. Raises `UserUnknown`."""
        user = await find_user(self._log, params.user_id)
        return self._show(await self._memories.catch_up(user))

    async def set(self, params: PolicyParams) -> PolicyShown:
        """Change it, and return once the Memory knows. Raises `UserUnknown`, `InvalidInput`."""
        given = _read_policy(params)
        user = await find_user(self._log, params.user_id)
        # One after the other: each changes some of what the one before left.
        async with self._worker.planner(user):
            memory = await self._memories.catch_up(user)
            policy = _join(AS_CONFIGURED if params.reset else memory.units.policy, given)
            self._parameters.with_policy(policy)  # raises for what no parameters may be
            if policy != memory.units.policy:
                await self._log.append_event(_change(memory, policy, self._clock()))
                memory = await self._memories.catch_up(user)
            return self._show(memory)

    def _show(self, memory: Memory) -> PolicyShown:
        policy = memory.units.policy
        found = self._parameters.with_policy(policy)
        return PolicyShown(
            preset=found.preset,
            online=found.online,
            ratio=found.ratio,
            member_cap=found.member_cap,
            time_bonus=found.time_bonus,
            min_age_s=found.min_age_s,
            never_merged=[role.value for role in found.never_merged],
            set_by_user=[each.name for each in fields(Policy) if getattr(policy, each.name) is not None],
        )


def _read_policy(params: PolicyParams) -> Policy:
    """What was given, as it is recorded. Raises `InvalidInput` with what would be right."""
    ratio, bonus, age_s = params.ratio, params.time_bonus, params.min_age_s
    if ratio is not None and not (0 <= ratio < 1 and round(ratio * THOUSAND) < THOUSAND):
        raise InvalidInput("ratio is the share of nodes to remove, from 0 to .999")
    if params.member_cap is not None and not (params.member_cap == 0 or 2 <= params.member_cap <= MEMBER_CAP_MAX):
        raise InvalidInput("member_cap is the most facts of one group, 2 or more, or 0 for no cap")
    if bonus is not None and not 0 <= bonus <= TIME_BONUS_MAX:
        raise InvalidInput(f"time_bonus is from 0 to {TIME_BONUS_MAX}; .5 is usual")
    if age_s is not None and not 0 <= age_s <= MIN_AGE_MAX_S:
        raise InvalidInput("min_age_s is how long ago a fact must have been said, from 0 seconds to 100 years")
    return Policy(
        online=params.online,
        ratio=None if ratio is None else round(ratio * THOUSAND),
        member_cap=params.member_cap,
        time_bonus=None if bonus is None else round(bonus * THOUSAND),
        min_age_s=None if age_s is None else math.ceil(age_s),
        never_merged=None if params.never_merged is None else _read_roles(params.never_merged),
    )


def _read_roles(names: list[str]) -> tuple[FactRole, ...]:
    known = {role.value: role for role in FactRole}
    if any(name not in known for name in names):
        raise InvalidInput(f"never_merged is a list of kinds of facts: {', '.join(known)}")
    return tuple(role for name, role in known.items() if name in names)


def _join(before: Policy, given: Policy) -> Policy:
    values = {each.name: getattr(given, each.name) for each in fields(Policy)}
    return replace(before, **{name: value for name, value in values.items() if value is not None})


def _change(memory: Memory, policy: Policy, now: Instant) -> NewEvent:
    key = identify(b"mf.policy", memory.user, memory.user_seq.to_bytes(8, "big")).hex()
    return NewEvent(
        user_id=memory.user_id,
        session_id=None,
        event=PolicyChanged(policy),
        key=f"{PolicyChanged.wire_name}/{key}",
        happened_at=now,
        lineage=(),
    )
