"""Related words: a question in other words than the memory's finds it, and its own words still count most."""

from __future__ import annotations

import numpy as np
import pytest

from projections.recall.agpr import NO_EMBEDDER
from projections.recall.answering import RecallRequest, recall
from projections.recall.expanding import Related, expand
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.recall.tokens import terms
from projections.texts import TurnsText
from tests.builders import KEYS, MONDAY, an_id


def remembering(*texts: str) -> NodeSet:
    """A chunk for each text, each in a session of its own."""
    nodes = NodeSet(b"alice")
    for n, text in enumerate(texts):
        at, session = MONDAY + n * 86_400_000, frozenset((KEYS.session("alice", f"s{n}"),))
        nodes.add(SearchNode(an_id(str(n)), NodeKind.CHUNK, TurnsText((n,)), (n,), session, at, at, at, 9), text)
    return nodes


def hash_of(nodes: NodeSet, word: str) -> int:
    (found,) = nodes.lexical.hash(terms(word))
    return found


def related(nodes: NodeSet, word: str, **near: float) -> Related:
    return Related({hash_of(nodes, word): {hash_of(nodes, other): cosine for other, cosine in near.items()}})


FILLING = [f"Kim: Something ordinary happened, number {n}." for n in range(30)]


def test_a_question_in_other_words_finds_what_was_said() -> None:
    nodes = remembering("Kim: My violin needs a new bow, as the old one fell out of a window.", *FILLING)
    question = "Which instruments does Kim play?"
    plain = recall(nodes, RecallRequest(question, 1, NO_EMBEDDER))
    wider = recall(
        nodes, RecallRequest(question, 1, NO_EMBEDDER, related=related(nodes, "instruments", violin=0.4))
    )

    assert wider.memories[0].node.turns == (0,)
    assert plain.memories[0].node.turns != (0,)


def test_the_word_itself_counts_before_what_is_like_it() -> None:
    nodes = remembering("Kim: My violin needs a bow.", "Kim: My instrument needs a bow.", *FILLING)
    request = RecallRequest(
        "Which instruments?", 2, NO_EMBEDDER, related=related(nodes, "instruments", violin=0.9)
    )

    assert [each.node.turns for each in recall(nodes, request).memories] == [(1,), (0,)]


def test_a_row_gets_the_best_related_word_and_not_their_sum_and_only_beyond_its_own() -> None:
    nodes = remembering("violin cello", "violin", "instrument violin", *FILLING)
    near = related(nodes, "instrument", violin=0.5, cello=0.25)
    asked = frozenset((hash_of(nodes, "instrument"),))
    found = expand(nodes.lexical, nodes.session_table(), near, asked, nodes.size)
    violin, cello, own = (nodes.lexical.scores([word], nodes.size) for word in ("violin", "cello", "instrument"))

    assert found is not None
    assert found.rows[0] == pytest.approx(max(0.5 * violin[0], 0.25 * cello[0]))
    assert found.rows[1] == pytest.approx(0.5 * violin[1])
    assert found.rows[2] == pytest.approx(max(0.0, 0.5 * violin[2] - own[2]))
    assert not found.rows[3:].any()
    assert np.flatnonzero(found.sessions).tolist() == np.flatnonzero(found.rows).tolist()


def test_what_is_asked_for_itself_and_what_many_rows_hold_stands_for_nothing() -> None:
    nodes = remembering("Kim: My violin needs a bow.", *FILLING)
    for near, also in ((related(nodes, "bow", violin=0.5), ("violin",)), (related(nodes, "bow", kim=0.9), ())):
        asked = frozenset(hash_of(nodes, word) for word in ("bow", *also))

        assert expand(nodes.lexical, nodes.session_table(), near, asked, nodes.size) is None
    assert expand(nodes.lexical, nodes.session_table(), related(nodes, "kim", bow=0.9), frozenset(), 31) is None
    assert expand(NodeSet().lexical, NodeSet().session_table(), Related(), frozenset(), 0) is None
