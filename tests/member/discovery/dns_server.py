"""A DNS server as a process: ``dns_server.py ZONE`` prints its port, and answers over UDP.

ZONE is a file of JSON that is read for each question: names, and their records by type. If it has
the name ``silent``, nobody gets an answer.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset


def answer(zone: dict[str, dict[str, list[str]]], data: bytes) -> bytes:
    asked = dns.message.from_wire(data)
    [question] = asked.question
    reply = dns.message.make_response(asked)
    reply.flags |= dns.flags.AA | dns.flags.RA
    records = zone.get(question.name.to_text(omit_final_dot=True).lower())
    if records is None:
        reply.set_rcode(dns.rcode.NXDOMAIN)
    else:
        kind = dns.rdatatype.to_text(question.rdtype)
        if kind in records:
            reply.answer.append(dns.rrset.from_text(question.name, 1, "IN", kind, *records[kind]))
    return reply.to_wire()


def main(path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        print(server.getsockname()[1], flush=True)
        while True:
            data, peer = server.recvfrom(4096)
            zone = json.loads(path.read_text())
            if "silent" not in zone:
                server.sendto(answer(zone, data), peer)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
