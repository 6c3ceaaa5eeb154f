"""The console in a real browser: it shows what nodes go through, and the browser is content."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.commands import command_of
from tests.e2e.local_cluster import LocalCluster, free_addresses, wait_until

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
ui = pytest.importorskip("selenium.webdriver.support.ui", reason="selenium is not installed")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from selenium.webdriver import Chrome

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = "no chromium on the PATH: bin/test brings it, or apt-get install chromium-driver"
PICTURES = os.environ.get("CONSOLE_PICTURES")
"""A folder for pictures of the page; by default none are made."""
SHOWN_S = 2.0
ESCAPE, ARROW_RIGHT = "\ue00c", "\ue014"
"""Keys, as WebDriver writes them."""
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1500"):
        options.add_argument(flag)
    options.add_argument("--disable-dev-shm-usage")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=DRIVER)
    with webdriver.Chrome(options=options, service=service) as started:
        yield started


class Page:
    """The console of one node in *browser*."""

    def __init__(self, browser: Chrome, url: str) -> None:
        self.browser = browser
        browser.get(url)
        self.shows("live", "live")

    def text(self, element_id: str) -> str:
        found: str = self.browser.execute_script(
            "return document.getElementById(arguments[0]).textContent", element_id
        )
        return found

    def visible(self, selector: str) -> str:
        """The text of the first element that is seen."""
        found = self.browser.find_elements("css selector", selector)
        return next(each.text for each in found if each.is_displayed())

    def focused(self) -> str | None:
        return self.browser.switch_to.active_element.get_attribute("id")

    def click(self, selector: str) -> None:
        """Click in one step: a part of the page may be replaced at any moment."""
        self.browser.execute_script("document.querySelector(arguments[0]).click()", selector)

    def count(self, selector: str) -> int:
        return len(self.browser.find_elements("css selector", selector))

    def shows(self, element_id: str, text: str, within_s: float = 10.0) -> float:
        """Seconds until *text* stood there."""
        return wait_until(
            lambda: text in self.text(element_id), within_s, f"{text!r} in {element_id}"
        )

    def picture(self, name: str) -> None:
        if PICTURES is not None:
            Path(PICTURES).mkdir(parents=True, exist_ok=True)
            self.browser.save_screenshot(str(Path(PICTURES) / f"{name}.png"))

    def complaints(self) -> list[str]:
        entries = self.browser.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries]


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, str]]:
    """Five nodes with a keyspace, and the address of the page that the first one serves."""
    folder = tmp_path_factory.mktemp("five")
    [http] = free_addresses(1)
    cluster = LocalCluster(
        folder / "nodes", 5, "--preset", "local", "--store", str(folder / "store")
    )
    cluster[0].command += ["--http", str(http)]
    with cluster:
        cluster.wait_converged()
        cluster[0].admin("/admin/keyspaces/create", {"name": "carts", "partitions": 20})
        yield cluster, f"http://{http}/"
        print(cluster.logs())  # shown if a test fails


@pytest.fixture
def page(five: tuple[LocalCluster, str], browser: Chrome) -> Iterator[Page]:
    """The page while all is well, of which the browser has nothing to say at the end."""
    page = Page(browser, five[1])
    page.shows("tally", "5 alive", 20)
    page.shows("keyspaces", "20 of 20", 20)
    # A process that was paused says for a while that it did not run.
    page.shows("banner", "All 5 members are up and agree, and every partition is served.", 60)
    page.complaints()  # those of before
    yield page
    assert page.complaints() == []


@pytest.fixture
def cluster(five: tuple[LocalCluster, str]) -> LocalCluster:
    return five[0]


def test_all_is_well_and_a_key_is_looked_up_by_keyboard(cluster: LocalCluster, page: Page) -> None:
    page.shows("matrix", "All 20 paths work", 20)
    page.shows("owned", "5 members are in the ring. All 20 partitions are served.")
    assert page.count(".chart") == 4
    assert page.browser.title == "Healthy · default"
    assert page.count("#problems *") == 0

    page.browser.switch_to.active_element.send_keys("/")
    page.browser.switch_to.active_element.send_keys("user:42\n")
    page.shows("detail", "user:42")
    owner = cluster[0].admin("/admin/lookup", {"key": "user:42"})["dest"]
    assert f"Owner{owner} (alive)" in page.text("detail")
    page.picture("healthy")
    page.browser.switch_to.active_element.send_keys(ESCAPE)
    assert page.count("#drawer[open]") == 0
    assert page.focused() == "key"


def test_members_are_filtered_and_one_is_opened(cluster: LocalCluster, page: Page) -> None:
    wanted = cluster[2].name
    page.browser.find_element("id", "filter").send_keys(wanted[-5:])
    wait_until(lambda: page.count("#members tr[data-find]:not([hidden])") == 1, 10, "one is left")
    page.click(f'#members a[data-member="{wanted}"]')
    page.shows("detail", "Its clock")
    page.browser.execute_script("document.getElementById('filter').value = ''")
    page.click("#drawer button")
    assert page.count("#drawer[open]") == 0


def test_a_choice_and_what_is_read_out_stay_when_parts_are_drawn_anew(
    cluster: LocalCluster, page: Page
) -> None:
    ask = page.browser.execute_script  # in one step: a part may be drawn anew at any moment
    read = "return document.querySelector('#matrix .read').textContent"
    shown = "return [...document.querySelectorAll('#bars figure')]"
    shown += ".filter((each) => each.checkVisibility()).map((each) => each.dataset.metric)"
    assert ask(shown) == ["share"]
    ui.Select(page.browser.find_element("css selector", "[data-metrics]")).select_by_value("p99")
    ask("document.querySelector('svg.square').focus()")
    webdriver.ActionChains(page.browser).send_keys(ARROW_RIGHT).perform()
    assert "→" in ask(read)

    every = "document.querySelectorAll('svg.square, svg.bars')"
    ask(f"for (const each of {every}) each.dataset.old = ''")

    def all_are_drawn_anew() -> bool:
        # A node that stumbles has other figures.
        cluster[3].signal(signal.SIGSTOP)
        time.sleep(0.2)
        cluster[3].signal(signal.SIGCONT)
        return page.count("[data-old]") == 0

    wait_until(all_are_drawn_anew, 40, "both are drawn anew")

    assert "→" in ask(read)
    assert ask("return document.activeElement.getAttribute('class')") == "pic square"
    assert ask(shown) == ["p99"]


def test_one_is_killed_and_one_is_paused(cluster: LocalCluster, page: Page) -> None:
    """The cluster takes its time to be sure; the page shows it at once."""
    victim, paused = cluster[4], cluster[3]
    victim.kill()
    cluster.wait_status(victim, {"faulty"}, cluster[0])
    assert page.shows("tally", "1 faulty") < SHOWN_S
    assert page.shows("problems", f"{victim.name} is gone") < SHOWN_S
    assert re.search("(Degraded|Critical) · default", page.browser.title)
    assert page.shows("events", f"{victim.name} suspect -> faulty") < SHOWN_S
    assert page.count("#events rect.faulty") == 1
    page.picture("killed")

    paused.signal(signal.SIGSTOP)
    page.shows("problems", f"{paused.name} stands still", 20)
    page.shows("members", "stands still")
    page.shows("matrix", "all 6 other paths work")
    # Critical until others serve the partitions of both.
    assert re.fullmatch(r"\(2\) (Degraded|Critical) · default", page.browser.title)
    page.picture("paused")
    cluster.wait_status(paused, {"faulty"}, cluster[0])
    assert page.shows("tally", "2 faulty") < SHOWN_S
    paused.signal(signal.SIGCONT)
    cluster.wait_status(paused, {"alive"}, cluster[0])
    assert page.shows("tally", "4 alive") < SHOWN_S

    victim.start()
    cluster.wait_status(victim, {"alive"}, cluster[0])
    assert page.shows("tally", "5 alive") < SHOWN_S
    page.shows("ring", f"{victim.name} came")


def test_acts_ask_first_and_can_be_undone(cluster: LocalCluster, page: Page) -> None:
    drained = cluster[1].name

    page.click(f'#members a[data-member="{drained}"]')

    def act(name: str, answer: str) -> None:
        button = f'#detail button[data-act="{name}"][data-member="{drained}"]'
        wait_until(lambda: page.count(button) == 1, 10, f"{name} is offered")
        page.click(button)
        assert drained in page.text("question")
        page.click(f"#ask button[value={answer}]")

    act("drain", "no")
    act("drain", "yes")
    page.shows("problems", f"draining: {drained}")
    page.shows("owned", "4 members are in the ring")
    page.shows("banner", "Changing")
    page.picture("drained")
    act("undrain", "yes")
    page.shows("owned", "5 members are in the ring")


def test_a_page_whose_node_stands_still_or_ends_says_so_and_goes_on_when_it_is_back(
    cluster: LocalCluster, page: Page
) -> None:
    others = {cluster[number].name for number in range(1, 5)}
    cluster[0].signal(signal.SIGSTOP)
    page.shows("live", "late")
    page.shows("live", "stale", 20)
    assert page.browser.title == "? Not known · default"
    command = page.visible("#banner code")
    assert command.removeprefix("ringpopctl --peer ").removesuffix(" check") in others
    assert f"{cluster[0].name} has sent nothing for 1" in page.visible("#banner .old .say")
    assert page.count("button[data-act]:enabled, #lookup button:enabled") == 0
    page.picture("stale")
    cluster[0].signal(signal.SIGCONT)
    page.shows("live", "live", 20)
    page.shows("tally", "5 alive", 20)
    assert page.count("#lookup button:enabled") == 1

    cluster[0].stop()
    page.shows("live", "stale", 20)
    cluster[0].start()
    page.shows("live", "live", 20)
    page.shows("tally", "5 alive", 20)
    said = [each for each in page.complaints() if "net::ERR_" not in each]  # by the browser itself
    assert said == []


def test_on_a_phone_nothing_is_wider_than_the_screen_nor_too_small(page: Page) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        wide = "return document.documentElement.scrollWidth"
        assert page.browser.execute_script(wide) == 390
        heads = page.browser.find_elements("css selector", "#members thead th")
        assert sum(head.is_displayed() for head in heads) == 4
        targets = page.browser.find_elements("css selector", "button, input, select, #members a")
        heights = {each.rect["height"] for each in targets if each.is_displayed()}
        assert heights
        assert min(heights) >= 38
        page.picture("phone")
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture
def dev() -> Iterator[tuple[Callable[[str], None], str]]:
    """What presses a key of ``ringpopd dev``, with five nodes, and the address of its console."""
    command = command_of("ringpopd", "dev", "5", "--base-port", "0")
    with subprocess.Popen(
        [*command, "--", "--preset", "local"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        keys, lines = process.stdin, process.stdout

        def press(key: str) -> None:
            keys.write(key)
            keys.flush()

        url = next(line.split()[1] for line in lines if line.startswith("console: "))
        rest = threading.Thread(target=lambda: list(lines))  # or it would wait for its reader
        rest.start()
        yield press, url
        press("q")
        assert process.wait(30) == 0
        rest.join(10)


def test_a_cut_is_shown_and_so_is_its_end(
    dev: tuple[Callable[[str], None], str], browser: Chrome
) -> None:
    press, url = dev
    wait_until(lambda: not is_refused(url), 20, "the console is served")
    page = Page(browser, url)
    page.shows("tally", "5 alive", 30)
    page.complaints()

    press("4c5c")
    page.shows("tally", "2 faulty", 30)
    assert page.count("#events rect.faulty") == 2
    page.shows("owned", "3 members are in the ring")
    page.shows("matrix", "all 6 other paths work")
    page.picture("cut")

    press("h")
    page.shows("tally", "5 alive", 60)
    page.shows("events", "faulty -> alive")
    assert page.complaints() == []


def is_refused(url: str) -> bool:
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    with socket.socket() as sock:
        return sock.connect_ex((host, int(port))) != 0


def test_the_page_in_the_dark_and_without_its_script(tmp_path: Path, browser: Chrome) -> None:
    [http] = free_addresses(1)
    cluster = LocalCluster(tmp_path / "nodes", 3, "--preset", "local")
    cluster[0].command += ["--http", str(http)]
    with cluster:
        cluster.wait_converged()
        dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        try:
            browser.get(f"http://{http}/ui")
            heads = browser.find_elements("css selector", "#members tbody th")
            assert sorted(head.text.split()[0] for head in heads) == sorted(cluster.addresses)
            background = browser.find_element("tag name", "body").value_of_css_property(
                "background-color"
            )
            assert background.startswith("rgba(16, 20, 22")
            browser.save_screenshot(str(tmp_path / "dark.png"))
            if PICTURES is not None:
                Path(PICTURES).mkdir(parents=True, exist_ok=True)
                browser.save_screenshot(str(Path(PICTURES) / "dark.png"))
        finally:
            browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
