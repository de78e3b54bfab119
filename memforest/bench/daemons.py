"""The daemons of a run: which there are, whether each has the model that it is called after, and what to say of
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from memforest.client import Client
from memforest.errors import InvalidInput, Unavailable
from memforest.socket_path import find_socket

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Like that of the other commands: forgetting a large memory takes minutes.
TIMEOUT_S = 600.0
# In the name of the built-in embedder whose vectors do not order answers.
_HASHING = "hashing"


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon that is measured. `name` is empty where there is one alone."""

    name: str
    socket_path: Path

    def client(self) -> Client:
        """A blocking client of it."""
        return Client(self.socket_path, timeout_s=TIMEOUT_S)


def read_sockets(given: Sequence[str]) -> tuple[Daemon, ...]:
    """`PATH`, or `NAME=PATH` for each of several daemons; of none the usual one. Raises InvalidInput."""
    if not given:
        return (Daemon("", find_socket(None)),)
    daemons: list[Daemon] = []
    for each in given:
        name, equals, path = each.partition("=")
        is_named = bool(equals) and not Path(each).exists()
        daemons.append(Daemon(name, Path(path)) if is_named else Daemon("", Path(each)))
    names = [daemon.name for daemon in daemons]
    if len(set(names)) < len(names) or (len(names) > 1 and "" in names):
        raise InvalidInput("Several daemons have a name each: --socket NAME=PATH --socket OTHER=PATH.")
    return tuple(daemons)


def check_models(daemons: Sequence[Daemon], merge_models: Sequence[str]) -> None:
    """Whether there is a daemon for each of these models, called after it, and it has that model.

    Raises InvalidInput, or what a client does.
    """
    by_name = {daemon.name: daemon for daemon in daemons}
    if set(by_name) != set(merge_models):
        sockets = " ".join(f"--socket {name}=PATH" for name in merge_models)
        raise InvalidInput(
            "A daemon has one model (models.chat_model), which merges, too; run one for each of --merge-models, "
            f"and name them after their models: {sockets}."
        )
    for name in merge_models:
        with by_name[name].client() as client:
            found = _language_model(client)
        if found != name:
            raise InvalidInput(f"The daemon called {name} has another model: {found} (models.chat_model).")


def check_chat_models(daemons: Sequence[Daemon], option: str) -> None:
    """Whether each has a chat model, for an `option` that needs one; better now than once a conversation is built.

    Raises Unavailable.
    """
    for daemon in daemons:
        with daemon.client() as client:
            if _models(client).get("chat") is None:
                raise Unavailable(
                    f"The daemon has no chat model (models.chat_model), which {option} needs: set one, or leave "
                    f"out {option}."
                )


def notes_on(daemons: Sequence[Daemon]) -> Iterator[str]:
    """What a reader of the tables has to know of each daemon."""
    for daemon in daemons:
        with daemon.client() as client:
            models = _models(client)
        called = f"{daemon.name}: " if daemon.name else ""
        yield f"{called}language model {models.get('language_model')}, embedder {models.get('embedder')}."
        if _HASHING in str(models.get("embedder")):
            yield f"{called}This embedder ranks no memories, so hybrid is BM25 here (models.embedder)."


def _models(client: Client) -> dict[str, object]:
    return cast("dict[str, object]", client.status().sections.get("models") or {})


def _language_model(client: Client) -> str:
    """As models.chat_model names it; a built-in one has a name of its own."""
    return str(_models(client).get("language_model")).removeprefix("endpoint-")
