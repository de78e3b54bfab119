"""A reader of the DOT language as strict as Graphviz about what we write: digraph, attributes, strings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# graphviz.org/doc/info/lang.html: a quoted string holds everything but a bare quotation mark.
_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<name>[A-Za-z_][A-Za-z_0-9]*)|(?P<number>-?(?:\.\d+|\d+(?:\.\d*)?))"""
    r"""|(?P<arrow>->)|(?P<sign>[{}\[\];,=]))""",
    re.DOTALL,
)


@dataclass
class Graph:
    """Nodes with their attributes, edges as (from, to, label)."""

    nodes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    edges: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])


def read_dot(text: str) -> Graph:
    """The graph of a DOT document; raises ValueError for what is none, and for an edge to no node."""
    tokens, at = list[str](), 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"no token at {at}")
        tokens.append(found.group().strip())
        at = found.end()
    reader = _Reader(tokens)
    graph = reader.graph()
    if any(end not in graph.nodes for edge in graph.edges for end in edge[:2]):
        raise ValueError("an edge leads to a node that is not declared")
    return graph


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def graph(self) -> Graph:
        for each in ("digraph", None, "{"):
            self._take(each)
        graph = Graph()
        while self._peek() != "}":
            self._statement(graph)
        self._take("}")
        if self._at != len(self._tokens):
            raise ValueError("something follows the graph")
        return graph

    def _statement(self, graph: Graph) -> None:
        name = self._take(None)
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ValueError(f"{name} is no name")
        match self._peek():
            case "=":
                self._take("=")
                self._take(None)
            case "->":
                self._take("->")
                other = self._take(None)
                graph.edges.append((name, other, self._attributes().get("label", "")))
            case _:
                attributes = self._attributes()
                if name not in ("node", "edge", "graph"):
                    if name in graph.nodes:
                        raise ValueError(f"{name} is declared twice")
                    graph.nodes[name] = attributes
        self._take(";")

    def _attributes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        self._take("[")
        while self._peek() != "]":
            name = self._take(None)
            self._take("=")
            found[name] = _unquote(self._take(None))
            if self._peek() == ",":
                self._take(",")
        self._take("]")
        return found

    def _peek(self) -> str:
        if self._at >= len(self._tokens):
            raise ValueError("it ends too soon")
        return self._tokens[self._at]

    def _take(self, wanted: str | None) -> str:
        token = self._peek()
        if wanted is not None and token != wanted:
            raise ValueError(f"{wanted} is expected, not {token}")
        self._at += 1
        return token


def _unquote(token: str) -> str:
    """What Graphviz shows of a label: escapes are resolved; one that would insert a name is an error here."""
    if not token.startswith('"'):
        return token

    def resolve(found: re.Match[str]) -> str:
        char = found.group(1)
        if char in "NGETHLlr":
            raise ValueError("an escape inserts a name or sets a line to a side")
        return {"n": "\n"}.get(char, char)

    return re.sub(r"\\(.)", resolve, token[1:-1], flags=re.DOTALL)
