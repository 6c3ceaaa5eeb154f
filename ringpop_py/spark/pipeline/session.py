"""A Spark session for one job: the present one, spark-submit's, or a local one of our own.

`reason_of` says in one line why Spark failed: its errors have stack traces of three languages.

A session that other code has made is left as it is; one of our own ends with its block, together
with its JVM.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
import warnings
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import ConfigError, RingpopError

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
"""Settings of a local session: it listens on no network, and does not write to the terminal."""
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""The environment variable in which spark-submit passes the port of its JVM to the program."""
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
REASON_CHARACTERS_MAX: Final = 600
_OURS: Final = re.compile(r"^(?:\w+: )*ringpop_py\.base\.errors\.(\w+): (.+)$", re.MULTILINE)
_PYTHON: Final = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
_CALLED: Final = "An error occurred while calling "
_JAVA: Final = re.compile(r"^\s*(?:at |\.\.\. \d+ more|Traceback |File )")


def check_java() -> None:
    """Raise ConfigError, which says what to install, if there is no Java."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").exists()):
        raise ConfigError(
            "Spark needs Java 17 or newer, and none was found: install it, for example with"
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
    """Yield a session for the job *name*. The options of spark-submit outrank the arguments.

    Call it in a thread that receives no signals, as `run_in_thread` makes one: a JVM whose launch
    is interrupted does not learn that its parent no longer waits for it, and runs on.

    Args:
        master: by default all cores of this machine, where each task is tried three times.
        conf: Spark's settings.
        folder: where a session of our own logs, errors only; by default it logs as Spark does.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - it starts slowly, and needs Java

    wanted: dict[str, Any] = dict(conf or {})
    # The *active* session belongs to a thread, and this may be another thread.
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
        with quiet:
            session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        _ignore_end_of_jvm(session)
        yield session
    finally:
        _end_jvm()


def _ignore_end_of_jvm(session: SparkSession) -> None:
    # As the JVM ends, it closes its connection to the server of accumulators, which would then
    # print a stack trace.
    server: Any = session.sparkContext._accumulatorServer  # noqa: SLF001 - Spark has no call for this
    print_error = server.handle_error

    def handle_error(request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], EOFError):
            print_error(request, client_address)

    server.handle_error = handle_error


@contextmanager
def _submitted_session(conf: Mapping[str, str]) -> Iterator[SparkSession]:
    # A session in spark-submit's JVM, with those settings of *conf* that spark-submit did not set.
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    SparkContext._ensure_initialized()  # noqa: SLF001 - so that there is a JVM to ask
    said = SparkConf()
    rest: dict[str, Any] = {name: value for name, value in conf.items() if not said.contains(name)}
    session = SparkSession.builder.config(map=rest).getOrCreate()
    try:
        yield session
    finally:
        _stop(session)


def _quiet(conf: Mapping[str, str], folder: Path) -> dict[str, Any]:
    logging = folder / "log4j2.properties"
    logging.write_text(_QUIET_LOGGING, encoding="utf-8")
    java_options = conf.get("spark.driver.extraJavaOptions", "")
    quiet = f"{java_options} -Dlog4j2.configurationFile={logging.as_uri()}"
    return {**conf, "spark.driver.extraJavaOptions": quiet.strip()}


def _end_jvm() -> None:
    """End the JVM, which would otherwise outlive its session and go on writing to its folder."""
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    gateway: Any = SparkContext._gateway  # noqa: SLF001 - Spark has no call for this
    if gateway is None:
        return
    process = gateway.proc
    # The end of the JVM also ends every call of ours that waits for it.
    last_resort = threading.Timer(JVM_END_S_MAX, process.kill)
    last_resort.start()
    try:
        # Not the *active* session: that belongs to a thread, and a failed call may have removed it.
        session = SparkSession._instantiatedSession  # noqa: SLF001
        if session is not None:
            _stop(session)
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
        process.stdin.close()  # the JVM ends when its standard input does
        process.wait()
    finally:
        last_resort.cancel()


def _stop(session: SparkSession) -> None:
    # If the JVM has ended already, this fails, which must not hide the error that ended it.
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.stop()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    # At the level of the descriptor, because processes that are started in the block inherit it.
    with path.open("ab") as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)


def reason_of(error: BaseException) -> str:
    """Return the root cause of *error*, as far as its text names one."""
    if isinstance(error, RingpopError):
        return str(error)
    text = str(error)
    # Spark prints causes after effects, so the last match is the root cause.
    for pattern in (_OURS, _PYTHON):
        found = pattern.findall(text)
        if found and "Traceback" in text:
            kind, reason = found[-1]
            return _shortened(f"{kind.rpartition('.')[2]}: {reason}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if not _JAVA.match(line)]
    if len(said) > 1 and said[0].startswith(_CALLED):  # py4j's own line; Java's error follows
        said = [said[1].removeprefix(": ")]
    return _shortened(said[0] if said else type(error).__name__)


def _shortened(text: str) -> str:
    text = text.strip()
    return text if len(text) <= REASON_CHARACTERS_MAX else f"{text[: REASON_CHARACTERS_MAX - 1]}…"
