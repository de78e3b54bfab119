"""`schema`: what the socket answers over HTTP, told by the daemon itself."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from daemon.asking.listings import NoParams


class Schemas:
    """Gives the documents that describe the daemon to programs."""

    def __init__(self, encode_openapi: Callable[[], bytes]) -> None:
        """`encode_openapi` makes the document of the table of methods, in which this one stands, too."""
        self._encode_openapi = encode_openapi

    async def openapi(self, _: NoParams) -> msgspec.Raw:
        """The OpenAPI 3.1 document, as JSON."""
        return msgspec.Raw(self._encode_openapi())
