"""A Spark session that suits a laptop: two cores, quiet, quick to start."""

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
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

JVM_END_S_MAX: Final = 20.0
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
        message = (
            "Spark needs Java 17 or newer, and there is none: install it, for example with"
            " `apt-get install openjdk-17-jre-headless`, or set JAVA_HOME"
        )
        raise ConfigError(message)


@contextmanager
def open_spark(
    name: str,
    *,
    folder: Path | None = None,
    driver_memory: str = "1g",
    quick_start: bool = True,
) -> Iterator[SparkSession]:
    """A session on two cores whose tasks are tried three times; it ends with the block.

    Args:
        folder: for Spark's scratch files and its log; without it Spark's defaults hold.
        quick_start: spare the JVM its second compiler; off for jobs of more than seconds.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - it starts slowly, and needs Java

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    java_options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" if quick_start else ""
    builder = (
        SparkSession.builder.master("local[2,3]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", driver_memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
    )
    if folder is not None:
        logging = folder / "log4j2.properties"
        logging.write_text(_QUIET_LOGGING, encoding="utf-8")
        java_options += f" -Dlog4j2.configurationFile={logging.as_uri()}"
        builder = builder.config("spark.local.dir", str(folder)).config(
            "spark.sql.warehouse.dir", str(folder / "warehouse")
        )
    builder = builder.config("spark.driver.extraJavaOptions", java_options)
    try:
        quiet = _stderr_to(folder / "spark.log") if folder is not None else nullcontext()
        with _interrupts_later(), quiet:
            session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
    finally:
        _end_jvm()


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
