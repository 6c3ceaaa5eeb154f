"""A node as this process: its application is started, and signals end it."""

from __future__ import annotations

import importlib
import inspect
import signal
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from ringpop_py.daemon import open_ringpop
from ringpop_py.errors import ConfigError, HostsFileError, JoinRefused, NameLost
from ringpop_py.logs import log
from ringpop_py.supervision import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringpop_py.cli.logs import Logs
    from ringpop_py.config.settings import Config
    from ringpop_py.node.ringpop import Ringpop


def run(config: Config, app: str | None, logs: Logs) -> None:
    """Run a node until a signal ends it; *app* is the value of ``--app``.

    Raises:
        ConfigError: it cannot be started like this.
        JoinRefused: the cluster will not have it.
        NameLost: its name is another's.
        ProcessFailed: the factory of *app* raised, or the node itself has a bug.
    """
    try:
        trio.run(_serve, config, app, logs)
    except (ConfigError, JoinRefused, NameLost, ProcessFailed):
        raise
    except Exception as error:
        log.exception("the node failed")
        raise ProcessFailed(f"the node failed: {one_line(error)}") from error


class ProcessFailed(Exception):
    """The application's factory, or what a member cannot be without, raised; the log says where."""


async def _serve(config: Config, app: str | None, logs: Logs) -> None:
    factory = _load(app) if app is not None else None

    async def start(ringpop: Ringpop) -> None:
        if factory is not None:
            await _start_application(f"--app {app}", factory, ringpop)
        await ringpop.wait_ready()

    with (
        trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals,
        trio.CancelScope() as at_once,  # without a farewell, which may take seconds
    ):
        async with open_ringpop(config, wait_ready=False) as ringpop:
            ringpop.on_debug = logs.debug
            ringpop.on_end = _ending_once(ringpop)
            ringpop.application.starting = factory is not None
            failure = await _until_told_to_end(ringpop, start, signals)
            if failure is not None:
                raise failure
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_end_at_once, signals, at_once)
                await ringpop.end()
                nursery.cancel_scope.cancel()
    log.info("ended")


async def _until_told_to_end(
    ringpop: Ringpop,
    start: Callable[[Ringpop], Awaitable[None]],
    signals: Any,  # noqa: ANN401 - trio's receiver has no public type
) -> Exception | None:
    """Return at the first signal to end; with the error if the application or the join fails."""
    failure: Exception | None = None

    async def try_to_start(scope: trio.CancelScope) -> None:
        nonlocal failure
        try:
            await start(ringpop)
        except Exception as error:  # noqa: BLE001 - raised by the caller, outside of the nursery
            failure = error
            scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(try_to_start, nursery.cancel_scope)
        async for number in signals:
            if number != signal.SIGHUP:
                break
            _reload(ringpop)
        nursery.cancel_scope.cancel()
    return failure


async def _start_application(
    flag: str, factory: Callable[[Ringpop], object], ringpop: Ringpop
) -> None:
    """Have *factory* register its handlers.

    Raises:
        ConfigError: it cannot, with a node that is configured like this.
        JoinRefused, NameLost: the join was refused, or the name lost, while the factory waited.
        ProcessFailed: it raised anything else.
    """
    try:
        result = factory(ringpop)
        if inspect.isawaitable(result):
            await result
    except (JoinRefused, NameLost):
        raise
    except ConfigError as error:
        raise ConfigError(f"{flag}: {error}") from error
    except Exception as error:
        log.exception("the application failed at its start")
        raise ProcessFailed(f"{flag}: {one_line(error)}") from error
    ringpop.application.starting = False


def _ending_once(ringpop: Ringpop) -> Callable[[], None]:
    """Return what ends this process as a SIGTERM does.

    A second SIGTERM cuts what is under way. A second call of the function does not, nor does one
    after a SIGTERM: an operator who asks again for a drain that takes long wants to wait for it.
    """
    asked = False

    def end() -> None:
        nonlocal asked
        if not asked and not ringpop.ending.begun:
            asked = True
            signal.raise_signal(signal.SIGTERM)

    return end


def _reload(ringpop: Ringpop) -> None:
    try:
        log.info("read the hosts file again", hosts=ringpop.reload_hosts())
    except HostsFileError as error:
        log.error("kept the old hosts", reason=str(error))  # noqa: TRY400 - its text says it all


async def _end_at_once(signals: Any, scope: trio.CancelScope) -> None:  # noqa: ANN401 - as above
    async for number in signals:
        if number != signal.SIGHUP:
            scope.cancel()
            return


def _load(spec: str) -> Callable[[Ringpop], object]:
    """The factory that ``MODULE:FACTORY`` names; modules are also found in the current folder.

    Raises:
        ConfigError: if there is none.
    """
    module_name, separator, factory_name = spec.partition(":")
    if not separator or not module_name or not factory_name:
        raise ConfigError(f"--app {spec!r} is not MODULE:FACTORY (for example myapp:create)")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the application's, of any kind
        raise ConfigError(
            f"--app {spec}: cannot import {module_name}: {one_line(error)}{_place(error)}"
        ) from error
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        raise ConfigError(f"--app {spec}: {module_name} has no function {factory_name!r}")
    return factory  # type: ignore[no-any-return]


def _place(error: Exception) -> str:
    """Where in the application an import failed: in code of its own, if that can be told."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}:{error.lineno})"
    ours = (__file__, importlib.__file__)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in ours and not frame.filename.startswith("<frozen ")
    ]
    libraries = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
    own = [frame for frame in frames if not frame.filename.startswith(libraries)] or frames
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
