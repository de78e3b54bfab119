"""Which Unix socket a client speaks to when nobody says so. Looks at files and environment only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from memforest.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET_NAME = "memforest.sock"
SYSTEM_SOCKET = Path("/run/memforest") / SOCKET_NAME
# Linux's sockaddr_un holds 108 bytes with the closing zero; the kernel's own message names no path.
PATH_BYTES_MAX = 107


def find_socket(
    explicit: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    system_socket: Path = SYSTEM_SOCKET,
) -> Path:
    """The absolute path of the daemon's socket; raises InvalidInput when it is too long to be one.

    1. `explicit`, then `$MEMFOREST_SOCKET_PATH`: taken as they are, whether or not the file exists.
    2. The first of these that exists: `memforest.sock` in a folder of `$RUNTIME_DIRECTORY` (what
       systemd gives the daemon; a service that embeds the client has one of its own, so existence
       decides), `/run/memforest/memforest.sock`, `$XDG_RUNTIME_DIR/memforest/memforest.sock`,
       `./memforest-data/memforest.sock`.
    3. None exists: the last one, where `memforestd run` puts it unless told otherwise.
    """
    env = os.environ if environ is None else environ
    named = explicit or env.get("MEMFOREST_SOCKET_PATH")
    if named:
        return _checked(Path(named))
    places = [Path(folder) / SOCKET_NAME for folder in env.get("RUNTIME_DIRECTORY", "").split(":") if folder]
    places.append(system_socket)
    if runtime := env.get("XDG_RUNTIME_DIR"):
        places.append(Path(runtime) / "memforest" / SOCKET_NAME)
    places.append(Path("memforest-data") / SOCKET_NAME)
    return _checked(next((place for place in places if _exists(place)), places[-1]))


def _exists(place: Path) -> bool:
    # A folder we may not look into is not ours: go on to the next place instead of failing.
    try:
        return place.exists()
    except OSError:
        return False


def _checked(path: Path) -> Path:
    absolute = path.expanduser().absolute()
    if len(os.fsencode(absolute)) > PATH_BYTES_MAX:
        raise InvalidInput(f"A socket's path has at most {PATH_BYTES_MAX} bytes; {absolute} is longer.")
    return absolute
