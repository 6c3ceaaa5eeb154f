"""Django, under gunicorn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from answers import COOKIES, DAEMON, NAME, cart
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path

from ringpop_py.edge.entry.asgi import RingpopMiddleware
from ringpop_py.edge.entry.wsgi import RingpopWSGI

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="of a test")  # noqa: S106


def carts(request: HttpRequest, key: str) -> HttpResponse:
    query = request.META["QUERY_STRING"]
    response = JsonResponse(cart(str(request.method), key, query, request.body, request.headers))
    for cookie in COOKIES:
        name, _, value = cookie.partition(";")[0].partition("=")
        response.set_cookie(name, value)
    return response


def who(_request: HttpRequest) -> HttpResponse:
    return JsonResponse(NAME, safe=False)


urlpatterns = [path("carts/<key>", carts), path("who", who)]
asgi = RingpopMiddleware(get_asgi_application(), key="path:/carts/{key}", daemon=DAEMON)
app = RingpopWSGI(get_wsgi_application(), key="path:/carts/{key}", daemon=DAEMON)
