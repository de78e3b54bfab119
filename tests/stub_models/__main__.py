"""`python -m tests.stub_models`: an OpenAI-compatible server without a model, for tests, benchmarks and trials.

It prints one line of JSON with its port and url when it listens, and ends with SIGTERM or Ctrl-C.
POST /faults {"faults": "429=1*0.5"} changes the faults; GET /stats says what was asked, POST /reset begins anew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence

from tests.stub_models.faults import CATALOGUE, CHAT_KINDS, EMBED, Faults, FaultUnknown
from tests.stub_models.server import JSON_MODES, Settings, StubServer


def describe_faults() -> str:
    """The end of `--help`."""
    lines = [f"  {name:<17}{where.value + ':':<21}{text}" for name, (where, text) in CATALOGUE.items()]
    kinds = ", ".join((*CHAT_KINDS, "chat", EMBED))
    return "\n".join(
        [
            "A fault is NAME[=ARGUMENT][@KIND][*SHARE][#COUNT]; --faults takes several, with commas between them,",
            "and the first that fits a request befalls it. 429=100@extract*0.3 refuses three tenths of the",
            f"extractions; hang#2 lets two requests hang. Kinds: {kinds}.",
            "",
            *lines,
        ]
    )


def parse_arguments(arguments: Sequence[str] | None) -> tuple[int, Settings, Faults]:
    """Port, settings and faults of a command line; ends the process for one that is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.stub_models",
        description=__doc__,
        epilog=describe_faults(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="0 for a free one")
    parser.add_argument("--latency", type=float, default=0.0, metavar="S", help="seconds a chat call takes")
    parser.add_argument(
        "--embed-latency", type=float, default=0.0, metavar="S", help="seconds an embedding call takes"
    )
    parser.add_argument("--slots", type=int, default=0, metavar="N", help="chat calls served at once; 0 for all")
    parser.add_argument("--dimensions", type=int, default=64, metavar="N", help="of its vectors (64)")
    parser.add_argument("--seed", type=int, default=0, help="of chance and of the vectors")
    parser.add_argument(
        "--json-mode", choices=JSON_MODES, default=JSON_MODES[-1], help="the most that it understands"
    )
    parser.add_argument("--faults", default="", metavar="SPEC", help="see below")
    options = parser.parse_args(arguments)
    try:
        faults = Faults(options.faults, options.seed)
    except FaultUnknown as error:
        parser.error(str(error))
    settings = Settings(
        latency_s=options.latency,
        embed_latency_s=options.embed_latency,
        slots=options.slots,
        dimensions=options.dimensions,
        seed=options.seed,
        json_mode=options.json_mode,
    )
    return options.port, settings, faults


async def serve(port: int, settings: Settings, faults: Faults) -> None:
    """Serve on the loopback until a signal comes."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    server = StubServer(settings, faults)
    listener = await loop.create_server(server.connect, "127.0.0.1", port, backlog=1024)
    port = listener.sockets[0].getsockname()[1]
    print(json.dumps({"port": port, "url": f"http://127.0.0.1:{port}/v1"}), flush=True)
    await over.wait()
    listener.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    asyncio.run(serve(*parse_arguments(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
