"""An answer for people: memories with their rank and sources, and how they came about, as tables."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from memforest.output import Screen, counted, shown, tidy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from memforest.explained import Browsed, Candidate, Explanation, Parameters, TimeAsked
    from memforest.types import Answer, Memory

_BAR_CELLS = 8
_BAR = " ▏▎▍▌▋▊▉█"
_SOURCES_SHOWN = 6
_KIND_STYLES = {"chunk": "cyan", "fact": "green", "group": "magenta", "summary": "yellow"}
_ID_SHOWN = 8
_GAP = (0, 2, 0, 0)
_TEXT_CELLS_MIN = 20

NOTHING = "Nothing is remembered that answers this."
NOBODY = "Nothing is known of this user."
NOBODY_THEN = "Nothing was known of this user then: --as-of goes by when something was recorded."


def show_answer(screen: Screen, answer: Answer) -> None:
    """The memories, and how sure the answer is. Of a user whom nobody knows another sentence tells."""
    if answer.memories or not is_unknown(answer):
        show_memories(screen, answer.memories, empty=NOTHING)
    if screen.is_terminal and answer.memories and answer.confidence is not None:
        chosen = f", mode {answer.mode} ({tidy(answer.why_mode)})" if answer.why_mode else ""
        Console(highlight=False).print(Text(f"confidence {answer.confidence:.2f}{chosen}", style="dim"))


def show_memories(screen: Screen, memories: Sequence[Memory], *, empty: str) -> None:
    """Numbered passages for people, in a pipe one line each."""
    if not screen.is_terminal:
        rows = (
            (place, memory.score, memory.said_at, memory.kind, memory.sessions, memory.text)
            for place, memory in enumerate(memories, start=1)
        )
        screen.table((), rows, empty=empty)
        return
    if not memories:
        click.echo(empty)
        return
    console = Console(highlight=False)
    best = max(memory.score for memory in memories)
    for place, memory in enumerate(memories, start=1):
        console.print(_passage(place, memory, best))


def is_unknown(answer: Answer) -> bool:
    """Nothing was ever recorded of the user."""
    return answer.watermark.user_seq == 0


def _passage(place: int, memory: Memory, best: float) -> Table:
    head = Text()
    head.append(bar(memory.score / best if best > 0 else 0.0), style="blue")
    head.append(f" {memory.score:.2f}  ", style="bold")
    head.append(_day(memory.said_at), style="bold")
    if memory.valid_until is not None:
        head.append(f", until {_day(memory.valid_until)}", style="bold")
    head.append(f"  {memory.kind}", style=_KIND_STYLES.get(memory.kind, ""))
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text(f"{place:>2}", style="bold"), head)
    grid.add_row("", Text(tidy(memory.text)))
    for part in memory.parts:
        caption = f" ({part.caption})" if part.caption else ""
        grid.add_row("", Text(tidy(f"{part.kind}: {part.reference}{caption}"), style="dim"))
    for member in memory.members or ():
        if member.text in memory.text:
            continue  # a group that was put together says what its members say
        grid.add_row("", Text(tidy(f"· {shown(member.said_at, people=True)[:10]}  {member.text}"), style="dim"))
    # The id is what `why` takes.
    grid.add_row("", Text(" · ".join(filter(None, (_sources(memory), memory.id))), style="dim"))
    return grid


def bar(share: float) -> str:
    """A bar of fixed width, filled to a share of it in eighths of a cell."""
    eighths = round(min(max(share, 0.0), 1.0) * _BAR_CELLS * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_BAR[rest] if rest else "")).ljust(_BAR_CELLS)


def _day(at: datetime | None) -> str:
    return "" if at is None else f"{at.day} {at:%B %Y}"


def _sources(memory: Memory) -> str:
    """`session/turn` of the sources; sessions alone for turns without an id."""
    names = list(dict.fromkeys("/".join(filter(None, (s.session_id, s.turn_id))) for s in memory.sources))
    more = len(names) - _SOURCES_SHOWN
    return tidy(", ".join(names[:_SOURCES_SHOWN]) + (f" and {more} more" if more > 0 else ""))


def show_explanation(screen: Screen, explanation: Explanation) -> None:
    """How the answer came about; in a pipe the candidates alone, one line each."""
    if not screen.is_terminal:
        screen.table((), map(_candidate_cells, explanation.candidates), empty="")
        return
    click.echo()
    for sentence in _in_words(explanation.parameters):
        screen.line(sentence)
    if explanation.time is not None:
        screen.line(_time_in_words(explanation.time))
    steps = ", ".join(f"{step} {ms:.2f}" for step, ms in explanation.timings_ms.items())
    screen.line(f"Took, in ms: {steps}.")
    _table(
        "Words of the question",
        ("word", "in memories", "weight"),
        ((word.word, word.nodes, f"{word.weight:.2f}") for word in explanation.words),
    )
    _table("Filters", ("filter", "left"), ((left.name, left.nodes) for left in explanation.filters))
    if explanation.browsed is not None:
        _show_browsed(screen, explanation.browsed)
    _table("Candidates", _CANDIDATE_COLUMNS, (_for_people(each) for each in explanation.candidates))
    if explanation.left_off:
        screen.line(f"{explanation.left_off} more candidates.")


def _show_browsed(screen: Screen, browsed: Browsed) -> None:
    """The trees that were recalled, best first, and the way down."""
    _table(
        "Trees",
        ("kind", "scope", "score", "by root", "by fact", "leaves"),
        (
            (each.kind, tidy(each.scope), *map(_near, (each.score, each.by_root, each.by_fact)), each.leaves)
            for each in browsed.trees
        ),
    )
    down = f"{counted(browsed.levels, 'level')} to {counted(browsed.leaves, 'memory')}"
    screen.line(f"Went down by {browsed.by}, {down}; {browsed.loose} in no tree.")


def _near(score: float | None) -> str | None:
    return None if score is None else f"{score:.3f}"


def _time_in_words(asked: TimeAsked) -> str:
    """What was read of time in the question."""
    said = f"Time in the question: {asked.kind.replace('_', ' ')}"
    if asked.start is not None and asked.end is not None:
        said += f", from {_day(asked.start)} to {_day(asked.end - timedelta(microseconds=1))}"
    if asked.anchor:
        said += ", beside something that happened"
    if asked.state is not None:
        said += f", of the state {asked.state}"
    return f"{said}; {counted(asked.told, 'state')} put first." if asked.told else f"{said}."


def _in_words(used: Parameters) -> tuple[str, ...]:
    """The two formulas with the numbers that were used."""
    words = 1 - used.cosine_weight
    vectors = f"{used.cosine_weight:g} cosine ({used.embedder}) + {words:g} " if used.embedder else ""
    beside = f" + {used.smoothing:g} of each neighbour" if used.smoothing else ""
    beside += f" + {used.session_weight:g} of its session's BM25" if used.session_weight else ""
    grown = f", grown by up to {used.entity_weight:g} for whom it names" if used.entity_weight else ""
    anchors, candidates = f"{used.anchor_share:g} k", f"{used.candidates_per_answer} k"
    nearness = f"p is the nearness, in {used.time_unit}, to the best {anchors} (*) of {candidates} candidates"
    return (
        f"Fusion: s = {vectors}BM25{beside}{grown}.",
        f"Propagation: v = {used.gamma:g} s + {1 - used.gamma:g} p; {nearness}; k is {used.k}.",
    )


_CANDIDATE_COLUMNS = ("rank", "before", "v", "s", "p", "cosine", "bm25", "near", "sess", "why not", "text")


def _candidate_cells(candidate: Candidate) -> tuple[object, ...]:
    return (
        candidate.rank,
        f"{candidate.rank_before}{'*' if candidate.anchor else ''}",
        f"{candidate.score:.3f}",
        f"{candidate.similarity:.3f}",
        f"{candidate.propagation:.3f}",
        None if candidate.cosine is None else f"{candidate.cosine:.3f}",
        f"{candidate.bm25:.2f}",
        f"{candidate.smoothing:.2f}",
        f"{candidate.session:.2f}",
        ", ".join(f"{word} {score:.2f}" for word, score in candidate.bm25_by_word.items()),
        _fate(candidate),
        candidate.text,
    )


def _for_people(candidate: Candidate) -> tuple[object, ...]:
    """The words under the text, or the numbers of ten columns would leave neither any room."""
    *numbers, words, fate, text = _candidate_cells(candidate)
    return (*numbers, fate, f"{' '.join(str(text).split())}\n{words}".rstrip())


def _fate(candidate: Candidate) -> str:
    if candidate.dropped == "carried":
        return "in " + ", ".join(each[:_ID_SHOWN] for each in candidate.carried_by[:3])
    return {"rank": "weaker", "budget": "no room"}.get(candidate.dropped or "", candidate.dropped or "")


def _table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    """A line of text is cut where the terminal ends, a number never; a column without anything is left out."""
    console = Console(highlight=False)
    cells = [[shown(cell, people=True) for cell in row] for row in rows]
    kept = [place for place, _ in enumerate(columns) if any(row[place] for row in cells)]
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, header_style="dim", padding=_GAP
    )
    room = console.width
    for place in kept:
        if columns[place] == "text":
            table.add_column("text", no_wrap=True, width=max(room - _GAP[1], _TEXT_CELLS_MIN))
            continue
        width = max(len(columns[place]), *(cell_len(row[place]) for row in cells))
        room -= width + _GAP[1]
        is_text = columns[place] in ("word", "filter", "why not")
        table.add_column(columns[place], justify="left" if is_text else "right", no_wrap=True, width=width)
    for row in cells:
        table.add_row(*(Text(row[place], overflow="ellipsis") for place in kept))
    console.print()
    console.print(table)
