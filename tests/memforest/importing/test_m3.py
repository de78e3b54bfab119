"""Memory graphs of M3-Agent: their sentences with embeddings and clip times, from pickles that nothing runs."""

from __future__ import annotations

import json
import pickle
import pickletools
import random
import resource
import struct
import subprocess
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memforest.errors import InvalidInput
from memforest.importing.entries import Chosen, Entry, Found, Skipped
from memforest.importing.formats import read_export, recognise
from memforest.importing.items import BadExport
from memforest.importing.pickled import PICKLE_BYTES_MAX, read_pickle
from tests.memforest.importing.video_graph import GraphNode, VideoGraph, a_graph, dump

FILM = Chosen(
    user="robot", stem="bedroom_01", embedding_model="text-embedding-3-large", begins="2024-07-01T09:00:00Z"
)


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def read(path: Path, chosen: Chosen = FILM) -> list[Entry]:
    return list(read_export(path, "m3", chosen))


def bodies(entries: list[Entry]) -> list[dict[str, Any]]:
    return [entry.body for entry in entries if isinstance(entry, Found)]


def as_json(graph: VideoGraph) -> dict[str, Any]:
    nodes = {str(node_id): vars(node) for node_id, node in graph.nodes.items()}
    return {
        "nodes": nodes,
        "text_nodes_by_clip": {str(clip): ids for clip, ids in graph.text_nodes_by_clip.items()},
        "character_mappings": graph.character_mappings,
        "reverse_character_mappings": graph.reverse_character_mappings,
    }


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_sentences_of_a_pickled_graph_are_memories_with_embeddings_and_clip_times(
    tmp_path: Path, protocol: int
) -> None:
    path = written(tmp_path / "bedroom_01.pkl", dump(a_graph(), protocol))
    entries = read(path)
    first, second, same, guest = bodies(entries)

    assert recognise(path) == "m3"
    assert first == {
        "type": "memory",
        "id": "node-2",
        "user_id": "robot",
        "session_id": "bedroom_01",
        "content": "<character_0> puts a red mug on the shelf.",
        "metadata": {"node": "2", "type": "episodic", "clip": 0},
        "timestamp": "2024-07-01T09:00:00+00:00",
        "embedding": [0.5, -1.0, 0.25],
        "embedding_model": "text-embedding-3-large",
    }
    assert (second["content"], second["timestamp"]) == (
        *('<character_0> says: "I like tea."', "2024-07-01T09:00:30+00:00"),
    )
    assert same["content"] == "Equivalence: <face_0>, <voice_1>", "with one name for both it would say nothing"
    assert guest["content"] == "<voice_9> is a guest of <character_0>."
    assert [entry.place for entry in entries if isinstance(entry, Skipped)] == ["node 0", "node 1"]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["<f2", "<f4", ">f8"])
def test_embeddings_that_are_arrays_are_read_as_numbers(tmp_path: Path, protocol: int, kind: str) -> None:
    rows = np.array([[[0.5, -1, 0.25]], [[1, 0, 2]], [[0, 1, 0]], [[3, 1, 1]]], dtype=kind)
    lists = [list(each) for each in rows]
    for embeddings in (list(rows), lists, [np.asfortranarray(each) for each in rows]):
        path = written(tmp_path / "a.pkl", dump(a_graph(embeddings), protocol))

        assert [body["embedding"] for body in bodies(read(path))] == rows[:, 0].tolist()


def test_the_same_graph_as_json_and_a_node_a_line_says_the_same(tmp_path: Path) -> None:
    pickled = bodies(read(written(tmp_path / "bedroom_01.pkl", dump(a_graph(), 4))))
    graph = as_json(a_graph())
    whole = tmp_path / "bedroom_01.json"
    whole.write_text(json.dumps(graph))
    listed = tmp_path / "listed.json"
    listed.write_text(json.dumps({**graph, "nodes": list(graph["nodes"].values())}, indent=1))
    lines = tmp_path / "lines.jsonl"
    lines.write_text("\n".join(json.dumps(node) for node in graph["nodes"].values()))

    assert [recognise(path) for path in (whole, listed, lines)] == ["m3"] * 3
    assert bodies(read(whole)) == pickled == bodies(read(listed))
    assert [body["id"] for body in bodies(read(lines))] == [body["id"] for body in pickled]


def test_without_a_beginning_the_time_is_left_to_the_bus_and_a_clip_may_be_shorter(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pkl", dump(a_graph(), 4))
    untimed = read(path, Chosen(user="robot"))
    short = bodies(read(path, Chosen(user="robot", begins="2024-07-01T09:00:00", clip_s=12.5)))

    assert {entry.dated for entry in untimed if isinstance(entry, Found)} == {"nowhere"}
    assert not any("timestamp" in body for body in bodies(untimed))
    assert [body["timestamp"] for body in short[:2]] == ["2024-07-01T09:00:00", "2024-07-01T09:00:12.500000"]
    with pytest.raises(InvalidInput, match="ISO 8601"):
        read(path, Chosen(user="robot", begins="yesterday"))
    with pytest.raises(InvalidInput, match="--user"):
        read(path, Chosen())


def test_embeddings_can_be_left_and_one_that_is_none_leaves_its_sentence(tmp_path: Path) -> None:
    broken = [[[float("nan"), 1.0]], [[0.0, 0.0]], [["Xylophon"]], [[10**400, 1]]]
    path = written(tmp_path / "a.pkl", dump(a_graph(broken), 4))
    entries = read(path)
    texts = read(written(tmp_path / "b.pkl", dump(a_graph(), 4)), Chosen(user="robot", embeddings=False))

    assert len(bodies(entries)) == len(bodies(texts)) == 4
    assert not any("embedding" in body for body in [*bodies(entries), *bodies(texts)])
    assert [entry.bare for entry in entries if isinstance(entry, Found)] == [True] * 4


def test_entries_that_cannot_be_read_are_skipped_with_their_node_and_the_rest_comes_in(tmp_path: Path) -> None:
    nodes = [
        GraphNode(1, "episodic", [], [[1.0]], 0),
        GraphNode(2, "episodic", ["  "], [[1.0]], 0),
        GraphNode(3, "dream", ["Xylophon"], [[1.0]], 0),
        GraphNode(4, "episodic", ["Tea is ready.", "And cake."], [[1.0], [2.0]], 7),
    ]
    entries = read(written(tmp_path / "a.pkl", dump(VideoGraph(nodes), 4)))

    assert [(each.place, each.reason) for each in entries if isinstance(each, Skipped)] == [
        ("node 1", "has no text"),
        ("node 2", "has no text"),
        ("node 3", "of no type that is known here"),
    ]
    assert [(body["id"], body["embedding"]) for body in bodies(entries)] == [
        ("node-4", [1.0]),
        ("node-4-1", [2.0]),
    ]


def test_of_two_nodes_with_one_id_neither_is_lost_unsaid(tmp_path: Path) -> None:
    nodes = [{"id": 1, "type": "episodic", "metadata": {"contents": [text]}} for text in ("Tea.", "Cake.")]
    path = written(tmp_path / "a.json", json.dumps({"nodes": nodes}).encode())

    assert [body["content"] for body in bodies(read(path))] == ["Tea.", "Cake."]


# Hostile pickles


class Calls:
    """What Python's own unpickler would call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._called = function, arguments

    def __reduce__(self) -> Any:
        return self._called


def hostile(marker: Path) -> list[bytes]:
    """Pickles that write a file when they are loaded, or would like to."""
    touch = f"open({str(marker)!r}, 'w').close()"
    made = [
        pickle.dumps(value, protocol)
        for protocol in (0, 2, 4, 5)
        for value in (
            Calls(subprocess.call, ["touch", str(marker)]),
            Calls(exec, touch),
            Calls(eval, touch),
            Calls(getattr, Path, "cwd"),
            {"nodes": Calls(exec, touch)},
            [Calls(exec, touch)],
        )
    ]
    graph = b"cmmagent.videograph\nVideoGraph\n"
    by_hand = [
        b"\x80\x02cbuiltins\nexec\n" + _text(touch) + b"\x85R.",
        b"\x80\x02cbuiltins\ngetattr\n" + graph + _text("__init__") + b"\x86R.",
        b"\x80\x02cbuiltins\ngetattr\ncbuiltins\ngetattr\n" + _text("Node") + b"\x86R.",
        b"\x80\x02cnumpy\nload\n" + _text("x") + b"\x85R.",
        b"\x80\x02cevil.videograph\nSystem\n)\x81.",
        b"\x80\x02(i" + b"os\nsystem\n.",
        b"\x80\x02" + graph + b"}" + _text("a") + b"K\x01sb.",  # fields for the class, not for an object of it
        b"\x80\x02" + graph + b"(K\x01t\x81.",  # made with arguments
        b"\x80\x02ccopyreg\n_reconstructor\n" + graph + b"cbuiltins\nobject\nN\x87R.",
        b"\x80\x02P1\n.",  # a persistent id
        b"\x80\x02\x82\x01.",  # an extension code
        b"\x80\x02c__main__\nVideoGraph.Node\n)\x81.",
    ]
    return made + by_hand


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def test_hostile_pickles_are_refused_and_nothing_of_them_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for content in hostile(marker):
        path = written(tmp_path / "a.pkl", content)
        with pytest.raises(BadExport) as raised:
            read_pickle(path)

        assert not marker.exists()
        assert "marker" not in str(raised.value)


def test_pickles_that_lie_about_sizes_or_notes_cost_nothing(tmp_path: Path) -> None:
    """A length of petabytes, a note of number two billion, an array larger than its bytes, a graph in itself."""
    dtype = b"cnumpy\ndtype\n" + _text("f8") + b"\x89\x88\x87R"
    array_of = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
    for content in (
        b"\x8e" + struct.pack("<Q", 1 << 50) + b".",
        b"\x8d" + struct.pack("<Q", 1 << 62) + b"x.",
        b"X" + struct.pack("<I", 0xFFFFFFFF) + b"x.",
        array_of + b"(K\x01J\xff\xff\xff\x7f\x85" + dtype + b"\x89C\x08" + bytes(8) + b"tb.",
        array_of + b"(K\x01J\xff\xff\xff\xff\x85" + dtype + b"\x89C\x08" + bytes(8) + b"tb.",
        b"]j" + struct.pack("<I", 7) + b".",
        b"(((.",
        b"}]]s.",
        b"K\x01K\x02.",
        b"",
    ):
        with pytest.raises(BadExport):
            read_pickle(written(tmp_path / "a.pkl", b"\x80\x04" + content))
    noted = b"]r" + struct.pack("<I", 2_000_000_000) + b"j" + struct.pack("<I", 2_000_000_000) + b"a."

    value = read_pickle(written(tmp_path / "a.pkl", b"\x80\x04" + noted))

    assert isinstance(value, list)
    assert value[0] is value


def _of_itself(value: bytes, join: bytes, times: int = 60) -> bytes:
    """A value that holds itself of before twice, so many times: 2 ** 60 of it, in a few hundred bytes."""
    return value + (b"q\x01" + join) * times


_BUFFER = b"cnumpy.core.numeric\n_frombuffer\n("
_BYTES = b"cnumpy\ndtype\n" + _text("u1") + b"\x85Rq\x08"


@pytest.mark.parametrize(
    "nodes",
    [
        b"}" + _of_itself(b"K\x01", b"h\x01\x86") + b"Ns",  # to hash such a key takes for ever
        b"}" + b"K\x01" + b"\x85" * 100_000 + b"Ns",  # and to hash this one more of a stack than there is
        b"}\x8a\x09" + bytes(8) + b"\x01Ns",  # of such numbers millions can have one hash
        _BUFFER + b"C\x00" + _BYTES + b"J\x00\x00\x00\x40K\x00\x86tR",  # a billion rows of nothing
        b"](X" + struct.pack("<I", 400_000) + b"x" * 400_000 + b"q\x07" + _text("latin1") + b"q\x08"
        + b"c_codecs\nencode\nh\x07h\x08\x86R" * 2_000 + b"e",
        b"](B" + struct.pack("<I", 400_000) + bytes(400_000) + b"q\x07" + _BYTES
        + (_BUFFER + b"h\x07h\x08J" + struct.pack("<I", 400_000) + b"\x85tR") * 200 + b"e",
    ],
    ids=["hash", "deep hash", "equal hashes", "rows of nothing", "texts", "arrays"],
)  # fmt: skip
def test_pickles_that_say_much_in_few_bytes_are_refused_soon(tmp_path: Path, nodes: bytes) -> None:
    graph = b"\x80\x04cmmagent.videograph\nVideoGraph\n)\x81}" + _text("nodes") + nodes + b"sb."
    with pytest.raises(BadExport):
        read(written(tmp_path / "a.pkl", graph))


def test_fields_that_many_objects_share_are_kept_once_and_names_that_are_lists_are_none(tmp_path: Path) -> None:
    numbers = b"".join(b"J" + struct.pack("<i", number) + b"N" for number in range(5_000))
    nodes = b"](}(" + numbers + b"uq\x07" + b"cmmagent.videograph\nVideoGraph\n)\x81h\x07b" * 2_000 + b"e"
    listed = b"}" + _text("1") + b"](" + _of_itself(b"]K\x01a", b"]h\x01ah\x01a") + b"es"
    graph = b"\x80\x04cmmagent.videograph\nVideoGraph\n)\x81}(" + _text("nodes") + nodes
    path = written(tmp_path / "a.pkl", graph + _text("text_nodes_by_clip") + listed + b"ub.")
    begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    entries = read(path)

    assert len(entries) == 2_001, "each is a node of no type"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begun < 100_000


def test_a_pickle_beyond_the_bound_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    with path.open("wb") as file:
        file.write(b"\x80\x04")
        file.truncate(PICKLE_BYTES_MAX + 1)
    with pytest.raises(BadExport, match="MiB"):
        read_pickle(path)


def test_a_pickle_cut_off_or_changed_anywhere_is_refused_or_read_and_never_runs(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    whole = dump(a_graph([[np.array([1.0, 2.0])]] * 4), 4)
    for _ in range(400):
        content = bytearray(whole)
        if chance.random() < 0.3:
            del content[chance.randrange(len(content)) :]
        for _ in range(chance.randrange(1, 4)):
            if content:
                content[chance.randrange(len(content))] = chance.randrange(256)
        try:
            entries = read(written(tmp_path / "a.pkl", bytes(content)))
        except InvalidInput:
            continue

        assert all(isinstance(entry, Found | Skipped) for entry in entries)


def test_what_plain_pickles_hold_is_what_python_reads(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)

    def a_value(depth: int) -> Any:
        kinds = 5 if depth == 0 else 8
        match chance.randrange(kinds):
            case 0:
                return chance.choice([None, True, False])
            case 1:
                return chance.choice([0, -1, 255, 65_535, -(2**31), 2**40, -(2**70)])
            case 2:
                return array("d", [chance.uniform(-1e9, 1e9)])[0]
            case 3:
                return chance.choice(["", "tea", "ü" * 300, "x" * 70_000, "\ud800"])
            case 4:
                return bytes(chance.randrange(300))
            case 5:
                return [a_value(depth - 1) for _ in range(chance.randrange(4))]
            case 6:
                return tuple(a_value(depth - 1) for _ in range(chance.randrange(5)))
            case _:
                return {chance.choice(["a", 1, (2, 3), None]): a_value(depth - 1) for _ in range(3)}

    for _ in range(200):
        value = a_value(4)
        for protocol in (2, 4, 5):
            content = pickle.dumps(value, protocol)
            if protocol == 2 and any(code.name == "GLOBAL" for code, _, _ in pickletools.genops(content)):
                continue  # bytes are text there, and a call makes them bytes again; that is read for arrays

            assert read_pickle(written(tmp_path / "a.pkl", content)) == value
