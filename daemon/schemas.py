"""`schema`: what the socket answers over HTTP, told by the daemon itself."""

from __future__ import annotations

import msgspec

from daemon.listings import NoParams


class Schemas:
    """Gives the documents that describe the daemon to programs."""

    def __init__(self, version: str) -> None:
        self._version = version

    async def openapi(self, _: NoParams) -> msgspec.Raw:
        """The OpenAPI 3.1 document, as JSON."""
        # Made of the table of methods, in which this one stands, too.
        from daemon.openapi import encode_openapi

        return msgspec.Raw(encode_openapi(self._version))
