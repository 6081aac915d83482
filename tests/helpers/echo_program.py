"""The echo service as a program that prints its address, to be killed."""

import asyncio
import sys

from tests.helpers.echo_service import Echo, start_echo


async def _main() -> None:
    server = await start_echo(Echo())
    sys.stdout.write(f"{server.address}\n")
    sys.stdout.flush()
    await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(_main())
