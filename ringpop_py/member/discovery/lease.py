"""Shows the leader in Kubernetes: mirrors it into a Lease, which decides nothing.

``kubectl get lease NAME`` and tools of operators see the leader there. A Lease has no fencing (its
holder may be paused, and wake up when another has it), so no code here relies on it: the records
in the store decide. A Lease that says something else is overwritten.
"""

from __future__ import annotations

import os
import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import trio

from ringpop_py.base.errors import BodyError, ConfigError
from ringpop_py.base.logs import log
from ringpop_py.base.values.packed import a_map, decode_value, encode_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RENEW_S: Final = 5.0
DURATION_S: Final = 15
"""A Lease that was not renewed for this many seconds has no holder."""
TIMEOUT_S: Final = 5.0
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder where Kubernetes puts the files that a pod needs to call its API."""
URL_VARIABLE: Final = "RINGPOP_KUBERNETES_URL"
"""The variable with another URL of the API: for example, that of ``kubectl proxy``."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
CONFLICT: Final = 409
NOT_FOUND: Final = 404


def parse_lease(text: str) -> tuple[str, str]:
    """Return the namespace and the name in ``NAMESPACE/NAME``. Raises ConfigError."""
    namespace, _, name = text.partition("/")
    if not _NAME.fullmatch(namespace) or not _NAME.fullmatch(name):
        raise ConfigError(f"a lease is NAMESPACE/NAME, as in Kubernetes, not {text!r:.200}")
    return namespace, name


def renewed(found: Mapping[str, Any] | None, holder: str, now: datetime) -> dict[str, Any]:
    """Return the spec of a Lease that *holder* holds at *now*.

    Args:
        found: the present spec; None if there is no Lease.
    """
    spec = dict(found or {})
    at = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if spec.get("holderIdentity") != holder:
        changes = spec.get("leaseTransitions")
        spec["leaseTransitions"] = changes + 1 if isinstance(changes, int) else 0
        spec["acquireTime"] = at
    return {
        **spec,
        "holderIdentity": holder,
        "leaseDurationSeconds": DURATION_S,
        "renewTime": at,
    }


class LeaseMirror:
    """Mirrors one Lease.

    Args:
        where: ``NAMESPACE/NAME``.
        me: the name of this node.
        leader: returns the name of the leading node, as this node sees it.

    Raises:
        ConfigError: *where* is not the name of a Lease, or Kubernetes' API is not here.
    """

    def __init__(
        self,
        where: str,
        me: str,
        leader: Callable[[], str | None],
        *,
        environment: Mapping[str, str] = os.environ,
        account: Path = ACCOUNT,
    ) -> None:
        self._namespace, self._name = parse_lease(where)
        self._me = me
        self._leader = leader
        self._account = account
        self._url = environment.get(URL_VARIABLE, "").rstrip("/")
        self._trouble = ""
        if not self._url:
            host = environment.get("KUBERNETES_SERVICE_HOST")
            if not host:
                raise ConfigError(
                    f"--lease needs Kubernetes' API: this is not a pod, and {URL_VARIABLE} is "
                    "not set"
                )
            port = environment.get("KUBERNETES_SERVICE_PORT", "443")
            self._url = f"https://{f'[{host}]' if ':' in host else host}:{port}"

    async def run(self) -> None:
        """Mirror until cancelled."""
        certificates = self._account / "ca.crt"
        verify: ssl.SSLContext | bool = True
        if certificates.exists():
            verify = ssl.create_default_context(cafile=certificates)
        async with httpx.AsyncClient(
            base_url=self._url, verify=verify, timeout=TIMEOUT_S, trust_env=False
        ) as client:
            while True:
                if self._leader() == self._me:
                    await self._mirror(client)
                await trio.sleep(RENEW_S)

    async def _mirror(self, client: httpx.AsyncClient) -> None:
        try:
            trouble = await self.renew(client)
        except (httpx.HTTPError, OSError, BodyError) as error:
            trouble = _why(error)
        if trouble != self._trouble:
            about = {"lease": f"{self._namespace}/{self._name}"}
            if trouble:
                log.warning("lease-not-mirrored", **about, text=trouble)
            else:
                log.info("lease-mirrored", **about)
        self._trouble = trouble

    async def renew(self, client: httpx.AsyncClient) -> str:
        """Write once that this node leads; return why that was refused, or nothing.

        Raises:
            httpx.HTTPError, OSError: the API cannot be reached, or this pod's token cannot be read.
            BodyError: the API answers with something else than a Lease.
        """
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"
        headers = {"content-type": "application/json"}
        token = self._account / "token"
        if token.exists():  # read each time: Kubernetes replaces it
            headers["authorization"] = f"Bearer {token.read_text('utf-8').strip()}"
        now = datetime.now(UTC)
        answer = await client.get(f"{path}/{self._name}", headers=headers)
        if answer.status_code == NOT_FOUND:
            lease: dict[str, Any] = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": renewed(None, self._me, now),
            }
            content = encode_value("json", lease)
            answer = await client.post(path, content=content, headers=headers)
        elif answer.is_success:
            # With its resourceVersion: if another node has written since, the API refuses this.
            lease = a_map(decode_value("json", answer.content), "a Lease")
            lease["spec"] = renewed(a_map(lease.get("spec", {}), "spec"), self._me, now)
            content = encode_value("json", lease)
            answer = await client.put(f"{path}/{self._name}", content=content, headers=headers)
        if answer.is_success or answer.status_code == CONFLICT:
            return ""  # the leader at that time writes it again
        return f"Kubernetes answers {answer.status_code}: {answer.text[:200]}"


def _why(error: Exception) -> str:
    """Return *error* as text; httpx says only in its causes why a certificate is not trusted."""
    cause: BaseException | None = error
    while cause is not None and not str(cause):
        cause = cause.__cause__ or cause.__context__
    return f"{type(error).__name__}: {cause or 'no reason is known'}"
