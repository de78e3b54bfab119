"""An explanation as `query` shows it: what recall found, with texts, parameters and times of the clock."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from daemon.asking.answer_types import CandidateShown, Explanation, ParametersShown
from events.envelope import RecordedEvent
from events.time import to_iso
from projections.recall.answering import RecallRequest
from projections.recall.explaining import Candidate, Explained
from projections.texts import compose

# Characters of a candidate's text: enough to recognise it.
CANDIDATE_TEXT_MAX = 160


class Stopwatch:
    """How long each step of an answer took, in the order of the steps."""

    def __init__(self) -> None:
        self._from = time.perf_counter()
        self.laps_ms: dict[str, float] = {}

    def lap(self, step: str) -> None:
        """A step is done; a step that is done twice counts twice."""
        now = time.perf_counter()
        self.laps_ms[step] = round(self.laps_ms.get(step, 0.0) + (now - self._from) * 1000, 3)
        self._from = now


def show_parameters(request: RecallRequest, mode: str, embedder: str | None) -> ParametersShown:
    """What the ranking depends on besides the question and the memory."""
    agpr = request.parameters
    return ParametersShown(
        mode=mode,
        k=request.k,
        candidates_per_answer=agpr.candidates_per_answer,
        anchor_share=agpr.anchor_share,
        time_unit=agpr.time_unit,
        gamma=agpr.gamma,
        smoothing=agpr.smoothing,
        session_weight=request.session_weight,
        entity_weight=agpr.entity_weight,
        cosine_weight=agpr.cosine_weight if embedder else 0.0,
        embedder=embedder,
    )


def show_explanation(
    found: Explained,
    parameters: ParametersShown,
    recorded: Mapping[int, RecordedEvent],
    shown: Collection[str],
    timings_ms: dict[str, float],
) -> Explanation:
    """`recorded` holds the events of the candidates' texts, `shown` the ids of the memories in the answer."""
    return Explanation(
        parameters=parameters,
        words=found.words,
        filters=found.filters,
        candidates=[_show_candidate(each, recorded, shown) for each in found.candidates],
        left_off=found.left_off,
        timings_ms=timings_ms,
    )


def _show_candidate(
    candidate: Candidate, recorded: Mapping[int, RecordedEvent], shown: Collection[str]
) -> CandidateShown:
    text = compose(candidate.node.ref, recorded) or ""
    # Recall counts characters; what its text has in tokens is known only now.
    is_left_out = candidate.rank is not None and candidate.node.id.hex() not in shown
    return CandidateShown(
        id=candidate.node.id.hex(),
        kind=candidate.node.kind,
        text=text if len(text) <= CANDIDATE_TEXT_MAX else text[: CANDIDATE_TEXT_MAX - 1] + "…",
        said_at=to_iso(candidate.node.said_at),
        bm25=candidate.bm25,
        bm25_by_word=candidate.bm25_by_word,
        cosine=candidate.cosine,
        fused=candidate.fused,
        smoothing=candidate.smoothing,
        session=candidate.session,
        named=candidate.named,
        similarity=candidate.similarity,
        anchor=candidate.anchor,
        propagation=candidate.propagation,
        score=candidate.score,
        rank_before=candidate.rank_before,
        rank=None if is_left_out else candidate.rank,
        dropped="budget" if is_left_out else candidate.dropped,
        carried_by=[each.hex() for each in candidate.carried_by],
        time=candidate.time,
        chosen=candidate.chosen,
    )
