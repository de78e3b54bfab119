"""The vector spaces of other systems: each is a model's name and a width, and its vectors compare with no others.

A memory that came with an embedding is in the space of the model that made it; all else is in ours, number 0.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from events.envelope import Reference, identify
from events.session import MemoryImported
from projections.facts.imported import read_vector

# Each has a table of vectors and a look at it in a query that names it; nobody has used more models at a time.
SPACES_MAX: Final = 8
# The number of what our own embedder makes.
OURS: Final = 0
# The name of the model of embeddings that came without one.
UNNAMED: Final = ""


class Space(NamedTuple):
    """A space of one user: its number (from 1), its name as a hash, its width, the seq of its first memory."""

    number: int
    name: bytes
    width: int
    first: int


class Spaces:
    """The spaces of one user in the order of their first memories, and which memories are in them."""

    def __init__(self, user: Reference) -> None:
        self._user = user
        self.known: list[Space] = []
        # The space of each memory that brought a vector, by its seq.
        self.number_of: dict[int, int] = {}
        self._by_name: dict[bytes, Space] = {}

    def take(self, seq: int, event: MemoryImported) -> int:
        """The number of the space of a memory from now on; one whose vector does not fit is in ours.

        What takes messages in refuses such vectors (`daemon/fitting.py`), so here they are as good as none.
        """
        vector = read_vector(event)
        if vector is None:
            return OURS
        name = self.name_of(event.embedding_model or UNNAMED)
        space = self._by_name.get(name)
        if space is None and len(self.known) < SPACES_MAX:
            space = Space(len(self.known) + 1, name, vector.size, seq)
            self.add(space)
        if space is None or space.width != vector.size:
            return OURS
        self.number_of[seq] = space.number
        return space.number

    def add(self, space: Space) -> None:
        """Know a space, the next one."""
        self.known.append(space)
        self._by_name[space.name] = space

    def name_of(self, model: str) -> bytes:
        """A model's name as it is kept: a hash, since names are words."""
        return identify(b"mf.space", self._user, model.encode())

    def find(self, model: str) -> Space | None:
        """The space of a model's name."""
        return self._by_name.get(self.name_of(model))

    def of_width(self, width: int) -> list[Space]:
        """The spaces whose vectors have so many numbers."""
        return [space for space in self.known if space.width == width]
