"""The launchers of bin/ in a made-up checkout: no network, and a Python that takes notes."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[1]
MODULES: Final = {
    "ringpopd": "ringpop_py.edge.cli.ringpopd",
    "ringpopctl": "ringpop_py.edge.ctl.ringpopctl",
}
# fmt: off
SYSTEM_TOOLS = [
    "sh", "dash", "cat", "chmod", "cksum", "cp", "dirname", "env", "flock", "id", "mkdir",
    "mktemp", "readlink", "rm", "sed", "sleep",
]
# fmt: on

# Answers to what the launchers ask of a Python, and writes down what it was told to do.
PYTHON = """\
#!/bin/sh
case "$*" in
-c*ensurepip*) exit "${NO_ENSUREPIP:-0}" ;;
-c*) exit 0 ;;
'-m pip --version') exit 0 ;;
esac
echo "$*" >>"$NOTES"
case "$*" in
'-m venv '*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
'-m pip install '*)
    sleep "${PIP_TAKES_S:-0}"
    while [ -e "$PIP_WAITS_WHILE" ]; do sleep 0.02; done
    if [ -n "$PIP_FAILS" ]; then echo "no such package"; exit 1; fi ;;
'-m compileall '*) if [ -n "$COMPILEALL_FAILS" ]; then echo "no space"; exit 1; fi ;;
esac
"""
UV = """\
#!/bin/sh
echo uv "$*" >>"$NOTES"
for last; do :; done
case "$*" in 'venv '*) mkdir -p "$last/bin" && cp "${0%/*}/python3" "$last/bin/python" ;; esac
"""
JAVA = """\
#!/bin/sh
echo 'openjdk version "{version}" 2025-04-15' >&2
"""


@dataclass
class Checkout:
    """A folder that looks like a checkout, and the tools that its launchers find."""

    root: Path
    tools: Path
    notes: Path

    def tool(self, name: str, text: str) -> None:
        # What stands there may be a link to the system's own tool: replace it, never write to it.
        (self.tools / name).unlink(missing_ok=True)
        (self.tools / name).write_text(text)
        (self.tools / name).chmod(0o755)

    def start(self, *command: str | Path, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(part) for part in command],
            cwd=self.tools,
            env={"PATH": str(self.tools), "NOTES": str(self.notes), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, launcher: str, *arguments: str, **environment: str) -> tuple[int, str]:
        """Exit code and stderr of a launcher."""
        process = self.start(self.root / "bin" / launcher, *arguments, **environment)
        _, errors = process.communicate(timeout=50)
        return process.returncode, errors

    def noted(self, word: str = "") -> list[str]:
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        return [line for line in lines if word in line]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path / "a checkout", tmp_path / "tools", tmp_path / "notes")
    made.tools.mkdir()
    shutil.copytree(ROOT / "bin", made.root / "bin")
    (made.root / "pyproject.toml").write_text("[project]\n")
    for tool in SYSTEM_TOOLS:
        found = shutil.which(tool)
        if found:
            (made.tools / tool).symlink_to(found)
    made.tool("python3", PYTHON)
    return made


LAUNCHERS = sorted(path.name for path in (ROOT / "bin").iterdir())


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_launcher_is_short_and_plain_sh(name: str) -> None:
    path = ROOT / "bin" / name
    subprocess.run(["sh", "-n", str(path)], check=True, timeout=10)

    if name != "_environment":
        assert os.access(path, os.X_OK)
        assert path.read_text().startswith("#!/bin/sh\n")
        assert len(path.read_text().splitlines()) < 30


@pytest.mark.parametrize("name", MODULES)
def test_the_first_call_installs_what_a_node_needs_and_says_so_in_one_line(
    checkout: Checkout, name: str
) -> None:
    status, errors = checkout.run(name, "--flag", "two words")

    assert status == 0
    assert len(errors.splitlines()) == 1
    assert ".venv" in errors
    assert checkout.noted("pip install")[0].endswith(f"{checkout.root}[state,http,tls,sim]")
    assert checkout.noted()[-1] == f"-P -m {MODULES[name]} --flag two words"


def test_the_package_is_compiled_once_it_is_installed(checkout: Checkout) -> None:
    checkout.run("ringpopd")
    checkout.run("ringpopctl")

    install, compilation, *commands = checkout.noted()[1:]
    assert "pip install" in install
    assert compilation == f"-m compileall -q {checkout.root}/ringpop_py {checkout.root}/sim"
    assert len(commands) == 2


def test_a_package_that_cannot_be_compiled_is_used_as_it_is(checkout: Checkout) -> None:
    status, errors = checkout.run("ringpopd", COMPILEALL_FAILS="yes")

    assert status == 0
    assert "start slower" in errors
    assert "ringpop_py.edge.cli.ringpopd" in checkout.noted()[-1]


def test_uv_is_told_to_compile_what_it_installs(checkout: Checkout) -> None:
    checkout.tool("uv", UV)

    status, _ = checkout.run("ringpopd")

    assert status == 0
    assert "--compile-bytecode" in checkout.noted("uv pip install")[0]


@pytest.mark.parametrize("word", ["--help", "-h"])
@pytest.mark.parametrize("launcher", MODULES)
def test_help_installs_nothing(checkout: Checkout, launcher: str, word: str) -> None:
    status, errors = checkout.run(launcher, word)

    assert (status, errors) == (0, "")
    assert checkout.noted() == [f"-P -m {MODULES[launcher]} {word}"]


def test_later_calls_install_nothing_and_say_nothing(checkout: Checkout) -> None:
    checkout.run("ringpopd")

    status, errors = checkout.run("ringpopctl")

    assert (status, errors) == (0, "")
    assert len(checkout.noted("pip install")) == 1


def test_a_launcher_works_through_a_symlink_from_any_folder(checkout: Checkout) -> None:
    link = checkout.tools / "ctl"
    link.symlink_to(checkout.root / "bin" / "ringpopctl")

    process = checkout.start(link, "members")
    process.communicate(timeout=50)

    assert process.returncode == 0
    assert checkout.noted()[-1] == "-P -m ringpop_py.edge.ctl.ringpopctl members"
    assert (checkout.root / ".venv").is_dir()


def test_other_requirements_are_installed_anew(checkout: Checkout) -> None:
    checkout.run("ringpopd")
    (checkout.root / "pyproject.toml").write_text("[project]\nname = 'other'\n")

    checkout.run("ringpopd")

    assert len(checkout.noted("pip install")) == 2
    assert len(checkout.noted("-m venv")) == 1


def test_more_is_added_to_the_same_environment_and_less_is_there_already(
    checkout: Checkout,
) -> None:
    checkout.tool("java", JAVA.format(version="21.0.1"))

    for launcher in ("ringpopd", "demo", "ringpopd", "demo"):
        assert checkout.run(launcher)[0] == 0

    extras = [line.rpartition("checkout")[2] for line in checkout.noted("pip install")]
    assert extras == ["[state,http,tls,sim]", "[demo,state,http,tls,sim]"]
    assert len(checkout.noted("-m venv")) == 1


def test_an_environment_made_by_hand_is_taken_over(checkout: Checkout) -> None:
    own = checkout.root / ".venv" / "bin"
    own.mkdir(parents=True)
    shutil.copy(checkout.tools / "python3", own / "python")

    status, _ = checkout.run("ringpopd")

    assert status == 0
    assert checkout.noted("-m venv") == []


def test_an_environment_whose_python_is_gone_is_made_again(checkout: Checkout) -> None:
    checkout.run("ringpopd")
    python = checkout.root / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3")

    status, errors = checkout.run("ringpopd")

    assert status == 0
    assert "making .venv again" in errors
    assert len(checkout.noted("-m venv")) == 2


def test_a_failed_installation_is_shown_and_tried_again_next_time(checkout: Checkout) -> None:
    status, errors = checkout.run("ringpopd", PIP_FAILS="yes")

    assert status == 1
    assert "no such package" in errors
    assert checkout.noted("ringpopd") == []

    assert checkout.run("ringpopd")[0] == 0


def test_two_launchers_at_once_install_once(checkout: Checkout) -> None:
    launcher = checkout.root / "bin" / "ringpopd"
    hold = checkout.root / "hold"
    hold.touch()
    started = [checkout.start(launcher, PIP_WAITS_WHILE=str(hold)) for _ in range(3)]

    # Each says at first what it does: by then one installs, and the others wait for it.
    said = [process.stderr.readline() for process in started if process.stderr is not None]
    hold.unlink()
    for process in started:
        process.communicate(timeout=50)

    assert [process.returncode for process in started] == [0, 0, 0]
    assert len(checkout.noted("pip install")) == 1
    assert len(checkout.noted("ringpop_py.edge.cli.ringpopd")) == 3
    assert sum("waiting" in line for line in said) == 2


def test_a_launcher_that_was_killed_leaves_no_lock_behind(checkout: Checkout) -> None:
    first = checkout.start(checkout.root / "bin" / "ringpopd", PIP_TAKES_S="3")
    deadline_at = time.monotonic() + 30
    while not checkout.noted("pip install"):
        assert time.monotonic() < deadline_at
        time.sleep(0.02)
    first.kill()
    first.communicate(timeout=50)

    status, errors = checkout.run("ringpopd")

    assert status == 0
    assert "waiting" not in errors


def test_a_python_without_ensurepip_is_told_what_to_install(checkout: Checkout) -> None:
    status, errors = checkout.run("ringpopd", NO_ENSUREPIP="1")

    assert status == 1
    assert "apt-get install python3-venv" in errors


def test_a_machine_without_a_new_python_is_told_so(checkout: Checkout) -> None:
    checkout.tool("python3", "#!/bin/sh\nexit 1\n")

    status, errors = checkout.run("ringpopd")

    assert status == 1
    assert "Python 3.11 or newer" in errors


@pytest.mark.parametrize("version", [None, "1.8.0_402", "11.0.2"])
def test_the_demo_needs_java_17_and_says_what_to_install(
    checkout: Checkout, version: str | None
) -> None:
    if version:
        checkout.tool("java", JAVA.format(version=version))

    status, errors = checkout.run("demo")

    assert status == 1
    assert "Java 17 or newer" in errors
    assert checkout.noted() == []


def test_java_is_installed_where_that_needs_nobody(checkout: Checkout) -> None:
    java = JAVA.format(version="17.0.1")
    checkout.tool("id", "#!/bin/sh\necho 0\n")
    checkout.tool("apt-cache", "#!/bin/sh\nexit 0\n")
    checkout.tool(
        "apt-get",
        f'#!/bin/sh\necho apt-get "$@" >>"$NOTES"\n'
        f"case $1 in install) cat >'{checkout.tools}/java' <<'END'\n{java}END\n"
        f"chmod +x '{checkout.tools}/java';; esac\n",
    )

    status, errors = checkout.run("demo")

    assert status == 0
    assert "installing openjdk-17-jre-headless" in errors
    assert [line.split()[1] for line in checkout.noted("apt-get")] == ["update", "install"]


def test_the_tests_go_on_without_java(checkout: Checkout) -> None:
    give_tools(checkout)

    status, errors = checkout.run("test", "-k", "ring")

    assert status == 0
    assert "will be skipped" in errors
    assert checkout.noted()[-1] == "pytest -q -k ring"


def test_servers_are_unpacked_into_the_environment_and_no_service_is_installed(
    checkout: Checkout,
) -> None:
    give_tools(checkout)
    checkout.tool("java", JAVA.format(version="17.0.1"))
    for name in ("chromium", "chromedriver"):
        checkout.tool(name, "#!/bin/sh\n")
    checkout.tool("apt-get", '#!/bin/sh\necho apt-get "$@" >>"$NOTES"\n: >"$2_3.4_amd64.deb"\n')
    unpack = "#!/bin/sh\nmkdir -p usr/bin\nfor name in etcd prometheus promtool; do"
    checkout.tool("dpkg-deb", f"{unpack} cp /bin/sh usr/bin/$name; done\n")

    first = checkout.run("test", "-k", "ring")
    second = checkout.run("test", "-k", "ring")

    for name in ("etcd", "prometheus", "promtool"):
        assert (checkout.root / ".venv" / "bin" / name).exists()
    downloads = ["apt-get download etcd-server", "apt-get download prometheus"]
    assert checkout.noted("apt-get") == downloads
    assert first[0] == second[0] == 0
    assert "skipped" not in first[1] + second[1]


def test_the_check_ends_at_the_first_failure_and_names_it(checkout: Checkout) -> None:
    give_tools(checkout, failing="mypy")

    status, errors = checkout.run("check")

    assert status == 3
    assert "failed at: mypy" in errors
    assert [line.split()[0] for line in checkout.noted()[-3:]] == ["ruff", "ruff", "mypy"]


def give_tools(checkout: Checkout, failing: str = "") -> None:
    """Put tools that only take notes where the environment has them."""
    folder = checkout.root / ".venv" / "bin"
    folder.mkdir(parents=True)
    shutil.copy(checkout.tools / "python3", folder / "python")
    for name in ("ruff", "mypy", "lint-imports", "pytest"):
        status = 3 if name == failing else 0
        (folder / name).write_text(f'#!/bin/sh\necho {name} "$@" >>"$NOTES"\nexit {status}\n')
        (folder / name).chmod(0o755)
