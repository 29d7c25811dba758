"""A QUIC client: each line of its input goes over a stream of its own, and the answer is printed.

Says "connected VERSION ALPN" first. Ends with its input; fails when it cannot connect.
"""

import argparse
import asyncio
import sys

from aioquic.asyncio import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection


async def read_lines():
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    return lines


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--name")
    parser.add_argument("--authority", required=True)
    parser.add_argument("--alpn", required=True)
    parser.add_argument("--version", type=int, default=1)
    parser.add_argument("--idle", type=float, default=30)
    arguments = parser.parse_args()
    versions = {1: 1, 2: 0x6B3343CF}
    configuration = QuicConfiguration(
        alpn_protocols=arguments.alpn.split(","),
        server_name=arguments.name,
        supported_versions=[versions[arguments.version]],
        idle_timeout=arguments.idle,
    )
    configuration.load_verify_locations(arguments.authority)
    loop = asyncio.get_running_loop()
    connection = QuicConnection(configuration=configuration)
    _, client = await loop.create_datagram_endpoint(
        lambda: QuicConnectionProtocol(connection), local_addr=("127.0.0.1", 0)
    )
    client.connect(("127.0.0.1", arguments.port))
    try:
        await client.wait_connected()
    except ConnectionError:
        sys.exit("not connected")
    print("connected", connection._version, connection.tls.alpn_negotiated, flush=True)
    lines = await read_lines()
    while line := await lines.readline():
        reader, writer = await client.create_stream()
        writer.write(line)
        writer.write_eof()
        print((await reader.read()).decode().rstrip(), flush=True)
    client.close()
    await client.wait_closed()


asyncio.run(main())
