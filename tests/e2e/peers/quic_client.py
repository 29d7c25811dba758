"""A QUIC client: each line of its input goes over a stream of its own, and the answer is printed.

Says "connected VERSION ALPN" first. Ends with its input; fails when it cannot connect. With --early
it connects once before, for a ticket, and sends that line along with the hello of the connection
that counts, whose greeting ends in "early" if the server takes it.
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
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--early")
    arguments = parser.parse_args()
    versions = {1: 1, 2: 0x6B3343CF}
    configuration = QuicConfiguration(
        alpn_protocols=arguments.alpn.split(","),
        server_name=arguments.name,
        supported_versions=[versions[arguments.version]],
        idle_timeout=arguments.idle,
    )
    configuration.load_verify_locations(arguments.authority)
    ticket = asyncio.get_running_loop().create_future()
    # As the loop tells the sender of a datagram.
    address = (arguments.host, arguments.port) + ((0, 0) if ":" in arguments.host else ())
    if arguments.early:
        before = await start(configuration, address, ticket.set_result)
        configuration.session_ticket = await ticket
        before.close()
        await before.wait_closed()
    client = await start(configuration, address)
    early = arguments.early and await send(client, arguments.early.encode())
    try:
        await client.wait_connected()
    except ConnectionError:
        sys.exit("not connected")
    connection = client._quic
    taken = ["early"] if connection.tls.early_data_accepted else []
    print("connected", connection._version, connection.tls.alpn_negotiated, *taken, flush=True)
    if early:
        await show(early)
    lines = await read_lines()
    while line := await lines.readline():
        await show(await send(client, line))
    client.close()
    await client.wait_closed()


async def start(configuration, address, ticket_handler=None):
    connection = QuicConnection(
        configuration=configuration, session_ticket_handler=ticket_handler
    )
    _, client = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: QuicConnectionProtocol(connection), local_addr=(address[0], 0)
    )
    client.connect(address)
    return client


async def send(client, line):
    reader, writer = await client.create_stream()
    writer.write(line)
    writer.write_eof()
    return reader


async def show(answer):
    print((await answer.read()).decode().rstrip(), flush=True)


asyncio.run(main())
