"""A class of the shape that M3-Agent pickles, so that tests have real pickles of it."""

from __future__ import annotations

import pickle
import sys
from types import ModuleType
from typing import Any, ClassVar

MODULE = "mmagent.videograph"


class GraphNode:
    def __init__(self, node_id: int, kind: str, contents: list[str], embeddings: Any, clip: int | None) -> None:
        self.id = node_id
        self.type = kind
        self.embeddings = embeddings
        self.metadata: dict[str, Any] = {"contents": contents}
        if clip is not None:
            self.metadata["timestamp"] = clip


class VideoGraph:
    Node: ClassVar[type]

    def __init__(self, nodes: list[GraphNode], characters: dict[str, list[str]] | None = None) -> None:
        texts = [node for node in nodes if node.type in ("episodic", "semantic")]
        self.nodes = {node.id: node for node in nodes}
        self.edges = {(1, 0): 1.0, (0, 1): 1.0}
        self.text_nodes = [node.id for node in texts]
        self.text_nodes_by_clip = {node.metadata.get("timestamp"): [node.id] for node in texts}
        self.max_img_embeddings = 10
        if characters is not None:
            self.character_mappings = characters
            self.reverse_character_mappings = {tag: name for name, tags in characters.items() for tag in tags}


# Inside it, as there.
VideoGraph.Node = GraphNode


def dump(graph: VideoGraph, protocol: int) -> bytes:
    """A pickle of a graph as the project's own process writes it, under the project's own names."""
    module = ModuleType(MODULE)
    module.VideoGraph = VideoGraph  # type: ignore[attr-defined]
    names = [(VideoGraph, "VideoGraph"), (GraphNode, "VideoGraph.Node")]
    own = [(each.__module__, each.__qualname__) for each, _ in names]
    sys.modules["mmagent"], sys.modules[MODULE] = ModuleType("mmagent"), module
    try:
        for kind, name in names:
            kind.__module__, kind.__qualname__ = MODULE, name
        return pickle.dumps(graph, protocol)
    finally:
        del sys.modules["mmagent"], sys.modules[MODULE]
        for (kind, _), (place, name) in zip(names, own, strict=True):
            kind.__module__, kind.__qualname__ = place, name


def a_graph(embeddings: Any = None) -> VideoGraph:
    """Two people in two clips: a face and a voice that are one, and what was seen, heard and concluded."""
    rows = embeddings or [[[0.5, -1.0, 0.25]], [[1.0, 0.0, 2.0]], [[0.0, 1.0, 0.0]], [[3.0, 1.0, 1.0]]]
    return VideoGraph(
        [
            GraphNode(0, "img", ["/9j/4AAQ"], [[0.1, 0.2]], None),
            GraphNode(1, "voice", ["hello"], [[0.3, 0.4]], None),
            GraphNode(2, "episodic", ["<face_0> puts a red mug on the shelf."], rows[0], 0),
            GraphNode(3, "episodic", ['<voice_1> says: "I like tea."'], rows[1], 1),
            GraphNode(4, "semantic", ["Equivalence: <face_0>, <voice_1>"], rows[2], 1),
            GraphNode(5, "semantic", ["<voice_9> is a guest of <face_0>."], rows[3], 1),
        ],
        {"character_0": ["face_0", "voice_1"]},
    )
