"""A Spark session for one job: the one that is there, spark-submit's, or a local one of our own.

A session that somebody else has made is used and left alone; one of ours ends with its block, JVM
and all.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import warnings
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

JVM_END_S_MAX: Final = 20.0
MASTER: Final = "local[*,3]"
LOCAL_CONF: Final[dict[str, Any]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""Of a local session: nothing listens to others, and the terminal is ours."""
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""The variable by which spark-submit tells the program that it has started where its JVM is."""
_QUIET_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
logger.repl.name = org.apache.spark.repl.Main
logger.repl.level = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
"""


def check_java() -> None:
    """Raise ConfigError, with what to install, if there is no Java."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").exists()):
        raise ConfigError(
            "Spark needs Java 17 or newer, and there is none: install it, for example with"
            " `apt-get install openjdk-17-jre-headless`, or set JAVA_HOME"
        )


@contextmanager
def open_session(
    name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[SparkSession]:
    """A session for the job *name*. What spark-submit was told outranks the arguments.

    Args:
        master: by default all cores of this machine, where each task is tried three times.
        conf: Spark's settings.
        folder: for a quiet log of a session of our own; without it Spark's defaults hold.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - it starts slowly, and needs Java

    wanted: dict[str, Any] = dict(conf or {})
    # The *active* session is that of a thread; ours may be another one.
    present = SparkSession.getActiveSession() or SparkSession._instantiatedSession  # noqa: SLF001
    if present is not None:
        for setting, value in wanted.items():
            present.conf.set(setting, value)
        yield present
        return
    wanted = {"spark.app.name": name, "spark.master": master or MASTER} | wanted
    if SUBMITTED in os.environ:
        with _submitted_session(wanted) as session:
            yield session
        return
    if wanted["spark.master"].startswith("local"):
        wanted = LOCAL_CONF | wanted
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if folder is not None:
        wanted = _quiet(wanted, folder)
    builder = SparkSession.builder.config(map=wanted)
    try:
        quiet = _stderr_to(folder / "spark.log") if folder is not None else nullcontext()
        with _interrupts_later(), quiet:
            session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        _hear_of_no_end(session)
        yield session
    finally:
        _end_jvm()


def _hear_of_no_end(session: SparkSession) -> None:
    """Have nothing printed when the JVM, as it ends, hangs up on the server of accumulators."""
    server: Any = session.sparkContext._accumulatorServer  # noqa: SLF001 - Spark has no call for this
    tell = server.handle_error

    def handle_error(request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], EOFError):
            tell(request, client_address)

    server.handle_error = handle_error


@contextmanager
def _submitted_session(conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session in spark-submit's JVM, with *conf* where spark-submit says nothing."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    SparkContext._ensure_initialized()  # noqa: SLF001 - so that there is a JVM to ask
    said = SparkConf()
    unsaid: dict[str, Any] = {
        name: value for name, value in conf.items() if not said.contains(name)
    }
    session = SparkSession.builder.config(map=unsaid).getOrCreate()
    try:
        yield session
    finally:
        _stop(session)


def _quiet(conf: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """*conf*, with a log that has errors only."""
    logging = folder / "log4j2.properties"
    logging.write_text(_QUIET_LOGGING, encoding="utf-8")
    java_options = conf.get("spark.driver.extraJavaOptions", "")
    quiet = f"{java_options} -Dlog4j2.configurationFile={logging.as_uri()}"
    return {**conf, "spark.driver.extraJavaOptions": quiet.strip()}


def _end_jvm() -> None:
    """End the JVM, which outlives its session otherwise, and writes to its folder."""
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    gateway: Any = SparkContext._gateway  # noqa: SLF001 - Spark has no call for this
    if gateway is None:
        return
    process = gateway.proc
    # When it has ended, so has every call to it that we wait for.
    last_resort = threading.Timer(JVM_END_S_MAX, process.kill)
    last_resort.start()
    try:
        # Not the *active* session: that is the one of a thread, and a call that failed may have
        # taken ours along.
        session = SparkSession._instantiatedSession  # noqa: SLF001
        if session is not None:
            _stop(session)
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
        process.stdin.close()  # its sign to end
        process.wait()
    finally:
        last_resort.cancel()


def _stop(session: SparkSession) -> None:
    """Stop *session*; that its JVM has ended already is not to hide the reason for it."""
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.stop()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until the block is left; then they are KeyboardInterrupt.

    A JVM whose launch is interrupted never finds out that nobody waits for it, and stays.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: came.append(1)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Give processes that are started in this block *path* as their standard error."""
    with path.open("ab") as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
