"""The process of a node: starts the application, and handles signals."""

from __future__ import annotations

import importlib
import inspect
import signal
import sys
import sysconfig
import traceback
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ringpop_py.base.errors import ConfigError, HostsFileError, JoinRefused, NameLost
from ringpop_py.base.faults import is_fault, text_of
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import one_line
from ringpop_py.edge.daemon import open_ringpop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from ringpop_py.base.config.settings import Config
    from ringpop_py.edge.cli.logs import Logs
    from ringpop_py.net.transport.network import Network
    from ringpop_py.node.ringpop import Ringpop


class NodeProgram(NamedTuple):
    """What a node runs: an application (``--app``), and a command while it holds a name."""

    app: str | None = None
    leader: str | None = None
    command: Sequence[str] = ()


def run(config: Config, program: NodeProgram, logs: Logs, network: Network | None = None) -> None:
    """Run a node until a signal ends it.

    Raises:
        ConfigError: the node cannot be started with these settings.
        JoinRefused: the cluster refuses the node.
        NameLost: another process has the node's name.
        ProcessFailed: the factory of *app* raised, or the node itself has a bug.
    """
    try:
        trio.run(_serve, config, program, logs, network)
    except (ConfigError, JoinRefused, NameLost, ProcessFailed, KeyboardInterrupt):
        raise
    except BaseException as error:
        log.exception("the node failed")
        raise ProcessFailed(f"the node failed: {one_line(error)}") from error


class ProcessFailed(Exception):
    """The application's factory or the node itself raised an error; the log has the traceback."""


async def _serve(config: Config, program: NodeProgram, logs: Logs, network: Network | None) -> None:
    # Before the node starts: a mistake in --app must not be seen by the cluster.
    factory = _load(program.app) if program.app is not None else None
    with (
        trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals,
        trio.CancelScope() as immediately,  # without a farewell, which may take seconds
    ):
        async with (
            _cancelling_at_start(signals, immediately) as started,
            open_ringpop(config, network=network, wait_ready=False) as ringpop,
        ):
            await started()
            ringpop.on_debug = logs.debug
            ringpop.on_end = _ending_once(ringpop)
            # Calls that come before the factory has added its handlers are declined, and tried
            # again.
            ringpop.application.starting = factory is not None
            failure = await _until_signalled(ringpop, program, factory, signals)
            if failure is not None:
                raise failure
            async with trio.open_nursery() as nursery:
                # A second signal ends the process without waiting for open requests.
                nursery.start_soon(_cancel_on_signal, signals, immediately)
                await ringpop.end()
                nursery.cancel_scope.cancel()
    log.info("ended")


async def _until_signalled(
    ringpop: Ringpop,
    program: NodeProgram,
    factory: Callable[[Ringpop], object] | None,
    signals: Any,  # noqa: ANN401 - trio's receiver has no public type
) -> Exception | None:
    """Return at the first signal to end, or with an error of the program or the join."""
    failure: Exception | None = None

    async def start(scope: trio.CancelScope) -> None:
        nonlocal failure
        try:
            if factory is not None:
                await _start_application(f"--app {program.app}", factory, ringpop)
            await ringpop.wait_ready()
            if program.leader is not None:
                from ringpop_py.edge.cli.leading import run_as_leader  # noqa: PLC0415 - on demand

                await run_as_leader(ringpop, program.leader, program.command)
        except Exception as error:  # noqa: BLE001 - raised by the caller, outside of the nursery
            failure = error
            scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start, nursery.cancel_scope)
        async for number in signals:
            if number != signal.SIGHUP:
                break
            _reload(ringpop)
        nursery.cancel_scope.cancel()
    return failure


async def _start_application(
    flag: str, factory: Callable[[Ringpop], object], ringpop: Ringpop
) -> None:
    try:
        result = factory(ringpop)
        if inspect.isawaitable(result):
            await result
        elif inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise ConfigError("it has a `yield`, so none of its code has run")  # noqa: TRY301
    except (JoinRefused, NameLost):  # of the node, while the factory waited
        raise
    except ConfigError as error:
        raise ConfigError(f"{flag}: {text_of(error)}") from error
    except BaseException as error:
        fault = _fault_of_factory(error)
        if fault is None:
            raise
        log.exception("the application failed at its start")
        raise ProcessFailed(f"{flag}: {one_line(fault)}") from error
    ringpop.application.starting = False


def _fault_of_factory(error: BaseException) -> BaseException | None:
    """Return *error* without exceptions that only end the task; None if nothing is left.

    A group can hold both kinds: a task of the factory may fail while a signal cancels it. A
    KeyboardInterrupt is the factory's own, because Ctrl-C is received as a signal by now.
    """
    ends = (trio.Cancelled, GeneratorExit)
    if isinstance(error, BaseExceptionGroup):
        return error.split(ends)[1]
    return None if isinstance(error, ends) else error


def _ending_once(ringpop: Ringpop) -> Callable[[], None]:
    """Return a function that sends this process a SIGTERM, once."""
    asked = False

    def end() -> None:
        nonlocal asked
        # A second SIGTERM would cut open requests. An operator who repeats `drain --end` because
        # the first takes long does not want that.
        if not asked and not ringpop.ending.begun:
            asked = True
            signal.raise_signal(signal.SIGTERM)

    return end


def _reload(ringpop: Ringpop) -> None:
    site = next((http.site for http in ringpop.ending.http), None)
    for name, read in (("keys", ringpop.credentials), ("certificate", site)):
        done, kept = f"read the {name} again", f"kept the old {name}"
        try:
            if read is not None:
                log.info(done, **{name: list(read.read_again())})
        except ConfigError as error:
            log.error(kept, reason=str(error))  # noqa: TRY400 - as below
    try:
        if (audit := ringpop.reporter.audit) is not None:
            log.info("opened the audit log again", path=audit.reopen())
    except ConfigError as error:
        log.error("kept the old audit log", reason=str(error))  # noqa: TRY400 - as below
    if ringpop.config.hosts_file is None:
        log.info("SIGHUP: there is no hosts file to read again (--hosts)")
        return
    try:
        log.info("read the hosts file again", hosts=ringpop.reload_hosts())
    except HostsFileError as error:
        log.error("kept the old hosts", reason=str(error))  # noqa: TRY400 - its text says it all


@asynccontextmanager
async def _cancelling_at_start(
    signals: Any,  # noqa: ANN401 - as above
    immediately: trio.CancelScope,
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Have a signal end the node without a farewell, until the yielded function is called.

    The signal then need not wait for a store that does not answer.
    """
    try:
        async with trio.open_nursery() as nursery:
            watching, ended = trio.CancelScope(), trio.Event()

            async def watch() -> None:
                with watching:
                    await _cancel_on_signal(signals, immediately)
                ended.set()

            async def stop() -> None:
                watching.cancel()
                await ended.wait()

            nursery.start_soon(watch)
            try:
                yield stop
            finally:
                watching.cancel()
    except BaseExceptionGroup as group:
        (error,) = group.exceptions  # the block's: the watcher raises nothing
        raise error from error.__cause__


async def _cancel_on_signal(signals: Any, scope: trio.CancelScope) -> None:  # noqa: ANN401 - as above
    async for number in signals:
        if number != signal.SIGHUP:
            scope.cancel()
            return


def _load(spec: str) -> Callable[[Ringpop], object]:
    """Return the factory that *spec* names, MODULE:FACTORY. Raises ConfigError."""
    module_name, separator, factory_name = spec.partition(":")
    if not separator or not module_name or not factory_name:
        raise ConfigError(f"--app {spec!r} is not MODULE:FACTORY (for example myapp:create)")
    sys.path.insert(0, str(Path.cwd()))  # as with `python -m`; installed scripts lack it
    try:
        module = importlib.import_module(module_name)
        factory = getattr(module, factory_name, None)  # may import, by `__getattr__`
    except BaseException as error:
        if not is_fault(error):
            raise
        raise ConfigError(
            f"--app {spec}: cannot import {module_name}: {one_line(error)}{_place(error)}"
        ) from error
    if not callable(factory):
        raise ConfigError(f"--app {spec}: {module_name} has no function {factory_name!r}")
    return factory  # type: ignore[no-any-return]


def _place(error: BaseException) -> str:
    """Return where an import failed: in the application's own code, if any of that was running."""
    if isinstance(error, SyntaxError) and error.filename:  # not one that code raised itself
        return f" ({error.filename}:{error.lineno})"
    ours = (__file__, importlib.__file__)  # the frames between `_load` and the application
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in ours and not frame.filename.startswith("<frozen ")
    ]
    libraries = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
    own = [frame for frame in frames if not frame.filename.startswith(libraries)] or frames
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
