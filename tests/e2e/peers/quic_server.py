"""A QUIC server that says who it is: pages over HTTP/3, lines over any other protocol.

Prints the port it listens on. Each line of a stream is answered by one, "NAME: line"; each request
by a page "<p>NAME AUTHORITY</p>". With --server-id its connection ids name it (QUIC-LB). With
--tickets sessions can be resumed; what then comes before the handshake is complete is answered by
"NAME early: line".
"""

import argparse
import asyncio
import os

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import HeadersReceived
from aioquic.quic import connection
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import HandshakeCompleted, ProtocolNegotiated, StreamDataReceived
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

# Server id and nonce are one block of AES; one byte is ahead of them.
BLOCK = 16


class Server(QuicConnectionProtocol):
    name = ""
    http = None
    complete = False

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated) and event.alpn_protocol == "h3":
            self.http = H3Connection(self._quic)
        if isinstance(event, HandshakeCompleted):
            self.complete = True
        if self.http is not None:
            for request in self.http.handle_event(event):
                if isinstance(request, HeadersReceived):
                    self.show_page(request)
        elif isinstance(event, StreamDataReceived) and event.data:
            when = b": " if self.complete else b" early: "
            answer = self.name.encode() + when + event.data
            self._quic.send_stream_data(event.stream_id, answer, event.end_stream)
        self.transmit()

    def show_page(self, request):
        authority = dict(request.headers)[b":authority"].decode()
        page = f"<!doctype html><title>{self.name}</title><p>{self.name} {authority}</p>".encode()
        headers = [(b":status", b"200"), (b"content-type", b"text/html")]
        self.http.send_headers(request.stream_id, headers)
        self.http.send_data(request.stream_id, page, end_stream=True)


class RoutableIds:
    """Takes the place of `os` where aioquic makes connection ids."""

    def __init__(self, config, key, server_id):
        self.first = bytes([config << 5 | BLOCK])
        self.cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        self.server_id = server_id

    def urandom(self, count):
        if count != 1 + BLOCK:
            return os.urandom(count)
        nonce = os.urandom(BLOCK - len(self.server_id))
        return self.first + self.cipher.update(self.server_id + nonce)


async def main():
    parser = argparse.ArgumentParser()
    for required in ["--name", "--certificate", "--key", "--alpn"]:
        parser.add_argument(required, required=True)
    parser.add_argument("--retry", action="store_true")
    parser.add_argument("--tickets", action="store_true")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--lb-config", type=int)
    parser.add_argument("--lb-key", type=bytes.fromhex)
    parser.add_argument("--server-id", type=bytes.fromhex)
    arguments = parser.parse_args()
    configuration = QuicConfiguration(is_client=False, alpn_protocols=arguments.alpn.split(","))
    configuration.load_cert_chain(arguments.certificate, arguments.key)
    if arguments.server_id is not None:
        configuration.connection_id_length = 1 + BLOCK
        ids = RoutableIds(arguments.lb_config, arguments.lb_key, arguments.server_id)
        connection.os = ids
    Server.name = arguments.name
    tickets = {}
    resumption = {
        "session_ticket_fetcher": lambda label: tickets.pop(label, None),
        "session_ticket_handler": lambda ticket: tickets.update({ticket.ticket: ticket}),
    }
    server = await serve(
        arguments.host,
        arguments.port,
        configuration=configuration,
        create_protocol=Server,
        retry=arguments.retry,
        **(resumption if arguments.tickets else {}),
    )
    print(server._transport.get_extra_info("sockname")[1], flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
