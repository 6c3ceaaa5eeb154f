"""moto's server of S3, run with a port as argument; a conditional put is one step, as it is in S3.

moto itself looks whether there is a key and then puts it, each request in a thread: of two puts at
the same time, both could win.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment


class OneAtATime:
    """Serves one request after another."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with self._lock:
            answer: Iterable[bytes] = self._moto(environ, start_response)
            return answer


if __name__ == "__main__":
    run_simple(
        "127.0.0.1",
        int(sys.argv[1]),
        OneAtATime(),
        threaded=True,
        request_handler=MotoRequestHandler,
    )
