"""`cli.commands`: what all command lines have in common."""

from __future__ import annotations

import io
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module

import pytest

from ringpop_py.base.version import package_version
from ringpop_py.edge.cli import commands

MODULES = {
    "ringpopd": "ringpop_py.edge.cli.ringpopd",
    "ringpopctl": "ringpop_py.edge.ctl.ringpopctl",
    "ringpop-pipeline": "ringpop_py.cli.pipeline",
    "ringpop-sim": "ringpop_sim.cli",
}


def run(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            code = import_module(MODULES[command]).main(arguments)
        except SystemExit as error:
            code = error.code
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


@pytest.mark.parametrize("command", MODULES)
def test_every_command_has_a_version(command: str) -> None:
    done = run(command, "--version")

    assert (done.returncode, done.stdout) == (0, f"{command} {package_version()}\n")


@pytest.mark.parametrize(
    ("command", "arguments", "suggested"),
    [
        ("ringpopctl", ("membrs",), "members"),
        ("ringpopctl", ("damp", "shw"), "show"),
        ("ringpopctl", ("wait", "--for", "converged", "--timout", "3"), "--timeout"),
        ("ringpopd", ("--lisen=127.0.0.1:0",), "--listen"),
        ("ringpop-sim", ("swram",), "swarm"),
    ],
)
def test_a_word_that_is_nearly_right_is_answered_with_the_right_one(
    command: str, arguments: tuple[str, ...], suggested: str
) -> None:
    done = run(command, *arguments)

    assert done.returncode == 2
    assert done.stderr.endswith(f"; did you mean {suggested}?\n")


def test_an_option_of_another_command_is_not_suggested_to_itself() -> None:
    done = run("ringpop-sim", "journal", "--for", "3")

    assert done.returncode == 2
    assert done.stderr.endswith(
        "unrecognized arguments: --for 3; it is an option of another command\n"
    )


def test_a_word_that_is_far_from_all_is_not_guessed_at() -> None:
    assert "did you mean" not in run("ringpopctl", "frobnicate").stderr


def test_bash_completes_a_command_with_what_is_printed() -> None:
    script = run("ringpopctl", "--print-completion", "bash").stdout
    function = "$(complete -p ringpopctl | sed 's/.*-F //;s/ .*//')"
    ask = f"COMP_WORDS=(ringpopctl mem) COMP_CWORD=1; {function}"

    done = subprocess.run(
        ["bash", "-c", f'{script}\n{ask}; echo "${{COMPREPLY[@]}}"'],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.stdout == "members\n", done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("keyspace", "create"), "create a keyspace, unless it exists with these settings"),
        (("lookup",), "the key's partition in this keyspace, and its owner"),
    ],
)
def test_the_help_of_a_command_says_what_it_comes_to(arguments: tuple[str, ...], said: str) -> None:
    done = run("ringpopctl", *arguments, "--help")

    assert said in " ".join(done.stdout.split())


def test_an_argument_that_is_not_text_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        commands.command_parser("try").parse_args(["a\udcff"])

    assert "argument 'a\\udcff' is not UTF-8" in capsys.readouterr().err
