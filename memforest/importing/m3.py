"""M3-Agent's memory graphs (`VideoGraph` of github.com/ByteDance-Seed/m3-agent): what it noted of a video.

Published as pickles; the same fields as JSON are read, too. Nodes of type `episodic` and `semantic` are sentences
with an embedding each, and `timestamp` is the number of the clip they are about; each becomes a memory. Faces and
voices (`img`, `voice`) have no text. Where the graph knows whose face or voice it is, `<face_1>` in a sentence is
told as `<character_0>`, as the agent itself reads it.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

from memforest.errors import InvalidInput
from memforest.importing.entries import Chosen, Entry, Found, Skipped, add_embedding
from memforest.importing.items import Item
from memforest.importing.pickled import Made, read_pickle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memforest.wire import JsonObject

_TEXTS: Final = ("episodic", "semantic")
_TAG: Final = re.compile(r"<((?:face|voice)_\d+)>")
# A sentence that says whose faces and voices are one: with one name for them it would say nothing.
_SAME: Final = "equivalence"


def read_m3_pickle(path: Path) -> Iterator[Item]:
    """A pickled graph, with `Made` for objects and arrays. Raises BadExport, OSError."""
    yield Item("the graph", read_pickle(path))


def read_m3(items: Iterator[Item], chosen: Chosen) -> Iterator[Entry]:
    """The sentences of each graph as messages of type `memory`. Raises InvalidInput without a user."""
    if chosen.user is None:
        raise InvalidInput("A memory graph names no user; say with --user whose memory it is for.")
    begins = _read_begin(chosen.begins)
    for item in items:
        graph = _object(item.value)
        # A long graph as JSON is better written as a node a line.
        nodes = _nodes([graph] if "nodes" not in graph and "metadata" in graph else graph.get("nodes"))
        if nodes is None:
            yield Skipped(item.place, item.fault or "no memory graph with `nodes`")
            continue
        clips = _clips(graph.get("text_nodes_by_clip"))
        names = _names(graph)
        for node_id, node in nodes:
            place = f"node {node_id}"
            if node.get("type") in ("img", "voice"):
                yield Skipped(place, "a face or a voice, which has no text")
            elif node.get("type") in _TEXTS:
                yield from _sentences(place, node_id, node, clips.get(node_id), names, (chosen, begins))
            else:
                yield Skipped(place, "of no type that is known here")


def _sentences(
    place: str,
    node_id: str,
    node: JsonObject,
    clip: int | None,
    names: dict[str, str],
    settings: tuple[Chosen, datetime | None],
) -> Iterator[Entry]:
    chosen, begins = settings
    metadata = _object(node.get("metadata"))
    contents = _list(metadata.get("contents"))
    if isinstance(metadata.get("contents"), str):
        contents = [metadata["contents"]]
    embeddings = _list(node.get("embeddings"))
    if isinstance(metadata.get("timestamp"), int) and not isinstance(metadata["timestamp"], bool):
        clip = metadata["timestamp"]
    if not contents:
        yield Skipped(place, "has no text")
    for number, text in enumerate(contents):
        if not isinstance(text, str) or not text.strip():
            yield Skipped(place, "has no text")
            continue
        at = None if begins is None or clip is None else _time_of(begins, clip, chosen.clip_s)
        body: JsonObject = {
            "type": "memory",
            "id": f"node-{node_id}" if number == 0 else f"node-{node_id}-{number}",
            "user_id": chosen.user,
            "session_id": chosen.session or chosen.stem,
            "content": _tell(text, names),
            "metadata": {"node": node_id, "type": node["type"], **({} if clip is None else {"clip": clip})},
        }
        if at is not None:
            body["timestamp"] = at
        embedding = embeddings[number] if number < len(embeddings) else None
        taken = add_embedding(body, embedding.values if isinstance(embedding, Made) else embedding, chosen)
        yield Found(place, body, "nowhere" if at is None else "itself", bare=not taken)


def _tell(text: str, names: dict[str, str]) -> str:
    """A sentence with the characters whose faces and voices it names."""
    if text.strip().lower().startswith(_SAME):
        return text
    return _TAG.sub(lambda tag: f"<{names.get(tag[1], tag[1])}>", text)


def _names(graph: JsonObject) -> dict[str, str]:
    """The character of each face and voice that the graph knows."""
    by_character = _items(graph.get("character_mappings"))
    names = {tag: name for name, tags in by_character for tag in _list(tags) if isinstance(tag, str)}
    by_tag = _items(graph.get("reverse_character_mappings"))
    return names | {tag: name for tag, name in by_tag if isinstance(name, str)}


def _nodes(value: object) -> list[tuple[str, JsonObject]] | None:
    """The nodes with their ids, in the order in which they were added; None when there are none."""
    if isinstance(value, dict):
        return [(str(key), _object(node)) for key, node in cast("dict[object, object]", value).items()]
    if isinstance(value, list):
        nodes = [_object(node) for node in cast("list[object]", value)]
        ids = [node.get("id") for node in nodes]
        return [
            (str(given if isinstance(given, int | str) else number), node)
            for number, (given, node) in enumerate(zip(ids, nodes, strict=True))
        ]
    return None


def _clips(value: object) -> dict[str, int]:
    """The clip of each node, as the graph's index has it."""
    clips: dict[str, int] = {}
    for clip, nodes in _items(value):
        if clip.isascii() and clip.isdecimal():
            clips.update((str(node), int(clip)) for node in _list(nodes) if isinstance(node, int | str))
    return clips


def _items(value: object) -> list[tuple[str, object]]:
    return [(str(key), each) for key, each in cast("JsonObject", value).items()] if isinstance(value, dict) else []


def _list(value: object) -> list[object]:
    if isinstance(value, Made):
        return value.values
    return cast("list[object]", value) if isinstance(value, list) else []


def _object(value: object) -> JsonObject:
    if isinstance(value, Made):
        return cast("JsonObject", value.fields)
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _read_begin(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput("--begins is a time in ISO 8601, as 2024-07-01T09:00:00Z.") from None


def _time_of(begins: datetime, clip: int, clip_s: float) -> str | None:
    """When a clip begins; None beyond what a date can be."""
    try:
        return (begins + timedelta(seconds=clip * clip_s)).isoformat()
    except OverflowError:
        return None
