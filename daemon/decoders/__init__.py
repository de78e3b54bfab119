"""How messages of different publishers become canonical ones. Pure: bytes, headers and subject in."""
