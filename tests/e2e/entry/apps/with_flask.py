"""Flask, under gunicorn: processes and threads."""

from __future__ import annotations

from answers import COOKIES, DAEMON, NAME, cart
from flask import Flask, Response, jsonify, request

from ringpop_py.edge.entry.wsgi import RingpopWSGI

app = Flask(__name__)
app.wsgi_app = RingpopWSGI(app.wsgi_app, key="path:/carts/{key}", daemon=DAEMON)  # type: ignore[method-assign]


@app.route("/carts/<key>", methods=["GET", "POST"])
def carts(key: str) -> Response:
    query = request.query_string.decode()
    response = jsonify(cart(request.method, key, query, request.get_data(), request.headers))
    for cookie in COOKIES:
        response.headers.add("set-cookie", cookie)
    return response


@app.route("/who")
def who() -> Response:
    return jsonify(NAME)
