"""The documentation's site: it is built, complete, its own host, and works in a browser."""

from __future__ import annotations

import csv
import functools
import http.server
import importlib
import re
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import zoo
from zoo.algorithms.registry import ALGORITHMS
from zoo.cli import VERBS

REPOSITORY = Path(__file__).resolve().parents[2]
IMAGES = REPOSITORY / "docs" / "images"

sys.path.insert(0, str(REPOSITORY / "scripts"))

import draw_pictures  # noqa: E402

PAGES = (
    *("index", "getting-started", "algorithms", "algorithms/ppo2", "reference/algorithm"),
    *("coming-from-stable-baselines", "gallery", "which-algorithm"),
)
MEGABYTES = 1_000_000
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    seconds = processor_seconds()
    built = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert processor_seconds() - seconds < 120
    return folder


def processor_seconds() -> float:
    """Return what ended child processes have used; unlike the clock it does not count other programs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Page(HTMLParser):
    """What a page links to, what it fetches, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {values.get("id") or "", (tag == "a" and values.get("name")) or ""}
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        if values.get(FETCHED.get(tag, "")):
            self.fetched.append(str(values[FETCHED[tag]]))
        self.fetched += re.findall(r"url\(([^)]+)\)", values.get("style") or "")


def pages_of(site: Path) -> dict[Path, Page]:
    """Read all pages but the one that a server shows for a wrong address, with links from its root."""
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def broken_links(site: Path) -> list[str]:
    """Return the links, and addresses of what pages fetch, that lead to no file or anchor of the site."""
    pages = pages_of(site)
    broken = []
    for path, page in pages.items():
        for link in page.links + page.fetched:
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            is_elsewhere = bool(parts.scheme or parts.netloc)
            has_anchor = not anchor or target not in pages or anchor in pages[target].anchors
            if not is_elsewhere and not (target.is_file() and has_anchor):
                broken.append(f"{path.relative_to(site)}: {link}")
    return broken


def fetches_from_others(site: Path) -> list[str]:
    """Return what pages and styles fetch from other hosts."""
    fetched = [address for page in pages_of(site).values() for address in page.fetched]
    for style in site.rglob("*.css"):
        fetched += re.findall(r"(?:url\(|@import )[\"']?([^)\"']+)", style.read_text())
    return [address for address in fetched if re.match(r"(https?:)?//", address)]


def test_checks_of_links_see_planted_errors(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="here"></h1><a href="b.html#there"></a><a href="#here"></a><a href="https://x.org/y"></a>'
        '<a href="b.html#nowhere"></a><a href="c.html"></a><img src="d.png">'
        '<script src="//x.org/z.js"></script>'
    )
    (tmp_path / "b.html").write_text('<p id="there"></p>')
    (tmp_path / "s.css").write_text('@import "https://x.org/font.css"; p { background: url(e.png) }')
    assert broken_links(tmp_path) == ["a.html: b.html#nowhere", "a.html: c.html", "a.html: d.png"]
    assert fetches_from_others(tmp_path) == ["//x.org/z.js", "https://x.org/font.css"]


def test_every_verb_is_on_the_page_of_the_command_line(site: Path) -> None:
    page = pages_of(site)[site / "command-line.html"]
    assert {f"zoo-{verb}" for verb in VERBS} <= page.anchors
    assert "n_trials" in (site / "command-line.html").read_text()


def test_diagrams_show_current_values() -> None:
    drawn = draw_pictures.diagrams()
    assert {name: (IMAGES / name).read_text() for name in drawn} == drawn, "run make docs"
    assert drawn["values.svg"].count(">0.97<") == 2


def test_images_are_small_and_stand_alone() -> None:
    images = [path for path in IMAGES.iterdir() if path.is_file()]
    assert max(path.stat().st_size for path in images) <= 100_000
    pages = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")]
    makers = [REPOSITORY / "scripts" / "make_notebooks.py"]
    text = "".join(page.read_text() for page in pages + makers)
    assert [path.name for path in images if f"images/{path.name})" not in text] == []
    for path in images:
        if path.suffix == ".svg":
            assert re.findall(r"(?:href=|url\(|src=)[\"']?(?!#)[^\"')]+", path.read_text()) == []


def test_site_is_small(site: Path) -> None:
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 40 * MEGABYTES


def test_links_lead_to_files_and_anchors(site: Path) -> None:
    assert broken_links(site) == []


def test_pages_fetch_from_no_other_host(site: Path) -> None:
    assert fetches_from_others(site) == []


def test_reference_has_every_public_name(site: Path) -> None:
    folders = ("reference", "algorithms")
    anchors = {
        anchor for folder in folders for page in pages_of(site / folder).values() for anchor in page.anchors
    }
    assert [name for name in zoo.__all__ if f"zoo.{name}" not in anchors] == ["__version__"]


def test_algorithm_pages_have_values_and_scores(site: Path) -> None:
    texts = {name: (site / "algorithms" / f"{name}.html").read_text() for name in ALGORITHMS}
    assert [name for name, text in texts.items() if 'id="hyperparameters"' not in text] == []
    assert "CartPole-v1</a></td>" in texts["ppo2"]
    assert "ppo2" not in Page(site / "algorithms.html").anchors


@pytest.fixture
def site_pages(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("mkdocs")
    monkeypatch.syspath_prepend(REPOSITORY / "scripts")
    return importlib.import_module("site_pages")


def missing_of_formulas(pages: dict[str, str]) -> list[str]:
    """Return what algorithms' pages, in Markdown, lack of formula and code, and code that is too long."""
    missing = []
    for name, page in pages.items():
        excerpts = re.findall(r"^In the code: <a .*\n\n```python\n(.*?)```$", page, flags=re.M | re.S)
        has = {"formula": '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in page}
        has |= {"code": bool(excerpts), "use": "**When to use it.**" in page}
        has |= {"short code": all(excerpt.count("\n") <= 30 for excerpt in excerpts)}
        has |= {"no TeX": not re.search(r"\$\$|\$`|\\frac|In the code: `", page)}
        missing += [f"{name}: {part}" for part, is_there in has.items() if not is_there]
    return missing


def test_algorithms_have_formulas_beside_their_code(site_pages: Any) -> None:
    pages = {name: site_pages.algorithm_page(name) for name in ALGORITHMS}
    assert missing_of_formulas(pages) == []
    assert "return -torch.minimum(advantages * ratio, advantages * clipped).mean()" in pages["ppo2"]
    assert "equation 7 of the paper" not in pages["ppo2"]  # docstrings are left out
    planted = {"a": re.sub("<math.*?</math>", "", pages["a2c"]), "b": pages["bc"].replace("```python", "```")}
    assert missing_of_formulas(planted) == ["a: formula", "b: code"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("In the code: `PPO2.no_loss` in [zoo/algorithms/ppo.py](../zoo/algorithms/ppo.py).", "no_loss"),
        ("In the code: `PPO2.policy_loss`", "expected"),
        ("$$\n\\fracc{1}{2}\n$$", "fracc"),
        ("$$ x $$", "formula"),
    ],
)
def test_site_refuses_wrong_code_and_formulas(line: str, named: str, site_pages: Any) -> None:
    with pytest.raises(site_pages.PluginError, match=named):
        site_pages.for_site(line, "docs/algorithms.md")


def test_code_link_leads_to_its_line(site: Path) -> None:
    page = (site / "algorithms" / "ppo2.html").read_text()
    link = re.search(r'href="\.\./(code/[^"]+)#(__codelineno-0-(\d+))"><code>PPO2.policy_loss<', page)
    assert link is not None
    place, anchor, number = link.groups()
    line = (REPOSITORY / "zoo/algorithms/ppo.py").read_text().splitlines()[int(number) - 1]
    assert line.strip().startswith("def policy_loss")
    assert anchor in Page(site / place).anchors
    assert "<math" in page
    assert "&lt;math" not in page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=["file", "http"])
def address(site: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Give the address of the site, opened as files or from a server."""
    if request.param == "file":
        yield site.as_uri()
        return
    handler = functools.partial(Silent, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def opened(browser: Any, address: str, events: list[str], **options: Any) -> Any:
    """Return a page of the browser; ``events`` gets its errors, and what it fetches from elsewhere."""
    page = browser.new_page(viewport={"width": 1300, "height": 900}, **options)
    page.set_default_timeout(300_000)  # of a busy machine
    page.on("console", lambda message: events.append(message.text))
    page.on("pageerror", lambda error: events.append(str(error)))
    page.on("requestfailed", lambda request: events.append(request.url))
    page.on(
        "request", lambda request: request.url.startswith((address, "data:")) or events.append(request.url)
    )
    return page


@pytest.mark.parametrize("name", PAGES)
def test_page_opens_without_errors(name: str, browser: Any, site: Path, tmp_path: Path) -> None:
    events: list[str] = []
    page = opened(browser, site.as_uri(), events, color_scheme="dark")
    page.goto(f"{site.as_uri()}/{name}.html", wait_until="load")
    assert page.locator("article h1").count() == 1
    assert page.locator("body").get_attribute("data-md-color-scheme") == "slate"
    page.screenshot(path=tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000
    page.close()
    assert events == []


def test_search_finds_hyperparameter(address: str, browser: Any) -> None:
    events: list[str] = []
    page = opened(browser, address, events)
    page.goto(f"{address}/index.html")
    page.click(".md-search__input")
    page.keyboard.type("clip_range")
    page.locator(".md-search-result__link[href*='algorithms/ppo2']").first.click(timeout=60_000)
    page.wait_for_url("**/algorithms/ppo2.html*")
    page.close()
    assert events == []


def scored() -> list[tuple[str, str]]:
    """Return algorithm and environment of each training of the collection."""
    rows = csv.DictReader((REPOSITORY / "docs/measured/scores.csv").read_text().splitlines())
    return sorted({(row["algo"], row["env"]) for row in rows})


def cards_shown(page: Any) -> list[tuple[str, str]]:
    """Return algorithm and environment of the visible cards."""
    script = "cards => cards.map(card => [card.dataset.algorithm, card.dataset.env])"
    return sorted(map(tuple, page.locator(".card:visible").evaluate_all(script)))


def test_gallery_filters_cards(address: str, browser: Any) -> None:
    events: list[str] = []
    fetched: list[str] = []
    page = opened(browser, address, events)
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(f"{address}/gallery.html", wait_until="load")
    assert cards_shown(page) == scored()
    films = [url for url in fetched if url.endswith(".gif")]
    assert 0 < len(films) < page.locator(".card img").count() / 10
    page.focus("select[name=family]")
    page.keyboard.type("Atari")
    atari = [pair for pair in scored() if "NoFrameskip" in pair[1]]
    assert cards_shown(page) == atari
    page.select_option("select[name=algorithm]", "ppo2")
    ppo2 = [pair for pair in atari if pair[0] == "ppo2"]
    assert cards_shown(page) == ppo2 != []
    assert page.locator(".filters output").inner_text() == f"{len(ppo2)} of {len(scored())} cards"
    page.select_option("select[name=actions]", "continuous")
    assert cards_shown(page) == []
    page.goto(f"{address}/gallery.html?algorithm=crossq")
    assert cards_shown(page) == [pair for pair in scored() if pair[0] == "crossq"]
    page.close()
    assert events == []


def test_gallery_shows_all_cards_without_javascript(browser: Any, site: Path) -> None:
    page = opened(browser, site.as_uri(), [], java_script_enabled=False)
    page.goto(f"{site.as_uri()}/gallery.html")
    assert cards_shown(page) == scored()
    assert page.locator(".filters").is_hidden()
    page.close()


def test_browser_tests_see_planted_errors(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<script>throw Error("planted")</script><img src="https://127.0.0.1:1/a.png">'
    )
    events: list[str] = []
    page = opened(browser, tmp_path.as_uri(), events)
    page.goto(f"{tmp_path.as_uri()}/a.html", wait_until="load")
    page.close()
    assert any("planted" in event for event in events)
    assert any("127.0.0.1:1/a.png" in event for event in events)
