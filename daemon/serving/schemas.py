"""`schema`: what the socket answers over HTTP, told by the daemon itself."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from anyio import to_thread

from daemon.asking.listings import NoParams


class Schemas:
    """Gives the documents that describe the daemon to programs."""

    def __init__(self, encode_openapi: Callable[[], bytes]) -> None:
        """`encode_openapi` makes the document of the table of methods, in which this one stands, too."""
        self._encode_openapi = encode_openapi

    async def openapi(self, _: NoParams) -> msgspec.Raw:
        """The OpenAPI 3.1 document, as JSON. Made in a thread: the first time that takes some 60 ms."""
        return msgspec.Raw(await to_thread.run_sync(self._encode_openapi))
