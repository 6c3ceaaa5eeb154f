"""An application that knows nothing of ringpop_py: ``ringpopd --http-in`` stands before it."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from answers import COOKIES, NAME, cart


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        key = path.rpartition("/")[2]
        value: object = NAME
        if path != "/who":
            value = cart(self.command, key, query, body, self.headers)
        said = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        for cookie in COOKIES:
            self.send_header("set-cookie", cookie)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said)

    do_POST = do_HEAD = do_GET  # noqa: N815 - names of the base class

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
