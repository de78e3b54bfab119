"""Rows 26 to 30 of the fault matrix: models that misbehave cost no turn, no answer, no chunk and no memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from daemon.chat.prompts import INSTRUCTIONS
from events.memory import ParkReason, Task
from tests.system.model_faults import CHUNKS, WORDS, Case, Ends, Group, Outcome, live_through

# Of a question while the embedder hangs: its own patience is 5 s, and the machine is shared with many others.
QUERY_S_MAX = 20.0
# A 20 MB answer is cut off at 4 MiB; the rest is what any work takes.
GROWN_MB_MAX = 60.0

EITHER, EXTRACTED, PARKED = Ends.EITHER, Ends.EXTRACTED, Ends.PARKED
INVALID, CUT = ParkReason.ANSWER_INVALID, ParkReason.ANSWER_CUT
REFUSED, TOO_LONG = ParkReason.REFUSED, ParkReason.TOO_LONG
# Texts of which two do not fit, and one does; its sentences are too short to be facts.
LONG = " It went on. Nobody minded." * 20
ROOM_FOR_ONE = len(INSTRUCTIONS[Task.EXTRACT]) + 1_600

GROUPS = (
    # Row 26
    Group(
        (
            Case("429", "429@chat"),
            Case("429, come back in 1 s", "429=1@chat"),
            Case("429, come back soon", "429=soon@chat"),
            Case("429, half of the time", "429=0@chat*0.5", EXTRACTED),
        )
    ),
    Group(
        (
            Case("500", "500@chat"),
            Case("503", "503@chat"),
            Case("no quota", "quota@chat"),
            Case("key refused", "401@chat"),
        )
    ),
    Group((Case("429, come back in 100 s", "429=100@chat"),), restarts=True),
    # Row 27
    Group(
        (
            Case("hang", "hang@chat", EITHER),
            Case("drip", "drip@chat", EITHER),
            Case("reset", "reset@chat", EITHER),
            Case("close", "close@chat", EITHER),
        )
    ),
    Group((Case("no such host"),), {"MEMFOREST_MODELS_CHAT_URL": "http://no-such-host.invalid/v1"}),
    Group((Case("no TLS"),), {"MEMFOREST_MODELS_CHAT_URL": "https://127.0.0.1:PORT/v1"}),
    # Row 28: what is no answer
    Group(
        (
            Case("20 MB", "huge@chat", EITHER),
            Case("without end", "endless@chat", EITHER),
            Case("HTML", "html200@chat", EITHER),
        )
    ),
    Group(
        (
            Case("error under 200", "error200@chat", EITHER),
            Case("half a body", "cut_body@chat", EITHER),
            Case("no choices", "empty_choices@chat", EITHER),
        )
    ),
    # Row 28: what is an answer of no use, or of use all the same; and row 29
    Group(
        (
            Case("garbage", "garbage@chat", PARKED, INVALID),
            Case("fence", "fence@chat", EXTRACTED),
            Case("prose", "prose@chat", EXTRACTED),
            Case("thinking", "thinking@chat", EXTRACTED),
            Case("no usage", "no_usage@chat", EXTRACTED),
            Case("truncated", "truncated@chat", PARKED, CUT),
            Case("null content", "null_content@chat", PARKED, INVALID),
            Case("empty content", "empty_content@chat", PARKED, INVALID),
            Case("wrong schema", "wrong_schema@chat", PARKED, INVALID),
            Case("wrong types", "wrong_types@chat", PARKED, INVALID),
            Case("turns that do not exist", "unknown_ids@chat", PARKED, INVALID),
            Case("tool call", "tool_call@chat", PARKED, INVALID),
            Case("content filter", "content_filter@chat", PARKED, REFUSED),
            Case("injection", "injection@chat", EXTRACTED),
            Case("no facts", "empty_facts@chat", EXTRACTED),
            Case("context for one of two turns", f"context_overflow={ROOM_FOR_ONE}@chat", EXTRACTED, padding=LONG),
            Case("context for nothing", "context_overflow=100@chat", PARKED, TOO_LONG),
        )
    ),
    # Row 30
    Group(
        (
            Case("embeddings: wrong dimensions", "wrong_dims"),
            Case("embeddings: NaN", "nan"),
            Case("embeddings: infinity", "inf"),
            Case("embeddings: null", "null"),
        )
    ),
    Group(
        (
            Case("embeddings: shuffled", "shuffled", EXTRACTED),
            Case("embeddings: base64", "base64", EXTRACTED),
            Case("embeddings: zeros", "zero"),
            Case("embeddings: short list", "short"),
        )
    ),
    Group((Case("embeddings: hang", "hang@embed"),)),
)


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Mapping[str, Outcome]:
    """What was seen of all cases that are asked for, lived through side by side."""
    asked = [item.nodeid for item in request.session.items if item.path == request.path]
    chosen = [
        (group, tuple(case for case in group.cases if any(f"[{case.name}]" in each for each in asked)))
        for group in GROUPS
    ]
    return live_through([replace(group, cases=cases) for group, cases in chosen if cases])


CASES = {case.name: case for group in GROUPS for case in group.cases}


def outcome_of(case: Case, outcomes: Mapping[str, Outcome]) -> Outcome:
    """What was seen of a case; raises what kept it from being seen."""
    seen = outcomes[case.name]
    if seen.error is not None:
        raise seen.error
    return seen


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_model_that_misbehaves_costs_no_turn_no_answer_and_no_chunk(
    case: Case, outcomes: Mapping[str, Outcome]
) -> None:
    seen = outcome_of(case, outcomes)
    parked = [each["reason"] for each in seen.parked if each["task"] == "extract"]
    silent = [what for what in seen.extracted if not what["facts"] and not what.get("missed")]

    # While it lasts, turns are recorded and found by their words.
    assert all(WORDS[2] in answer for answer in seen.answers)
    assert max(seen.query_s) < QUERY_S_MAX
    assert seen.grown_mb < GROWN_MB_MAX
    # Afterwards every chunk is extracted or parked with a reason, and none is empty without saying so.
    assert len(seen.extracted) + len(parked) == CHUNKS
    assert silent == []
    if case.ends in (EXTRACTED, Ends.WAITED):
        assert parked == []
    if case.ends is PARKED:
        assert parked == [case.reason] * CHUNKS
    # Asked again, all of it is extracted.
    assert (len(seen.extracted_at_last), seen.parked_at_last) == (CHUNKS, [])
    assert [word for word in WORDS if word in seen.log] == []


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.ends is Ends.WAITED], ids=str)
def test_while_work_waits_for_a_model_status_says_why(case: Case, outcomes: Mapping[str, Outcome]) -> None:
    models = outcome_of(case, outcomes).status["models"]
    away = models["chat"] if models["embedder_trouble"] is None else models["embeddings"]

    assert away["reason"]
    assert [word for word in WORDS if word in str(models)] == []


@pytest.mark.parametrize("case", [CASES["429, come back in 100 s"]], ids=str)
def test_an_endpoint_that_asks_for_a_long_pause_gets_it(case: Case, outcomes: Mapping[str, Outcome]) -> None:
    chat = outcome_of(case, outcomes).status["models"]["chat"]

    assert chat["circuit"] == "open"
    assert 60 < chat["retry_in_s"] <= 100


@pytest.mark.parametrize("case", [CASES["context for one of two turns"]], ids=str)
def test_a_chunk_that_is_too_long_is_read_in_parts_and_its_event_has_all_their_calls(
    case: Case, outcomes: Mapping[str, Outcome]
) -> None:
    extracted = outcome_of(case, outcomes).extracted

    # As a whole, and each of its two turns.
    assert all(what["calls"] >= 3 and what["facts"] >= 2 for what in extracted)


@pytest.mark.parametrize("case", [CASES["no facts"], CASES["injection"]], ids=str)
def test_an_answer_that_says_nothing_of_what_was_said_is_seen_as_such(
    case: Case, outcomes: Mapping[str, Outcome]
) -> None:
    seen = outcome_of(case, outcomes)

    assert all(what["missed"] > 0 for what in seen.extracted)
    # What an answer tells its reader to do is done by nobody.
    assert {each["session_id"]: each["turns"] for each in seen.sessions} == {"s1": 4, "s2": 4}
    if case.name == "no facts":
        assert [each["zero_chunks"] for each in seen.sessions] == [2, 2]
