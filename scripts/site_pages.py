"""Pages of the documentation's site that are made from other files; MkDocs calls the hooks (mkdocs.yml).

    make site

Each algorithm gets a page: its section of docs/algorithms.md, its scores in docs/collection.md, its classes.
A line "In the code: `NAME` in [FILE](../FILE)." gets the source of what it names, formulas become MathML.
Each name that `zoo` exports is on a page of the reference, each verb's help on another. CHANGELOG.md and
its like, and code that pages link to become pages too. The gallery has a card for each row of
docs/collection.md. Links are written for the repository; here they are rewritten for the site.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import html
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from textwrap import dedent
from typing import Any

import griffe
from latex2mathml.converter import convert as mathml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

import zoo
from zoo.algorithms.registry import ALGORITHMS, CLASS_NAMES, MODULES
from zoo.cli import VERBS, status_of
from zoo.envs.registry import folder_name

REPOSITORY = Path(__file__).resolve().parent.parent
ALL_ALGORITHMS = "docs/algorithms.md"
COLLECTION = "docs/collection.md"
EXAMPLES = "docs/examples.md"
ROOT_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "SECURITY.md": "security.md",
}
REFERENCE = {
    "training": ("Training", ("zoo.experiment.experiment", "zoo.config", "zoo.errors")),
    "agents": ("Evaluating, comparing, tuning", ("zoo.experiment.evaluation", "zoo.commands", "zoo.tuning")),
    "algorithm": ("Algorithms and policies", ("zoo.algorithms.algorithm", "zoo.policies", "zoo.buffers")),
    "envs": ("Environments", ("zoo.envs",)),
    "experts": ("Experts", ("zoo.imitation", "zoo.experiment.expert_recording")),
    "loggers": ("Loggers", ("zoo.experiment.loggers", "zoo.experiment.trackers")),
    "callbacks": ("Callbacks", ("zoo.algorithms.callback", "zoo.experiment")),
}
"""Pages of the reference: title and modules. A name is on the first page that has its module."""

FORMULA = re.compile(r"^\$\$(?:\n(.+?)\n\$\$$)?|\$`([^`\n]+)`\$", flags=re.M | re.S)
"""A formula in LaTeX: on lines of its own between lines of $$, or in a line between $` and `$."""

CODE = re.compile(r"^In the code:(?: .+ in \[([\w/]+\.py)\]\(.+\)\.$)?", flags=re.M)

as_anchor = slugify(case="lower")


def on_config(config: MkDocsConfig) -> None:
    """Add the pages that are made here to the navigation, and the version to the footer."""
    made = {
        "Algorithms": [f"algorithms/{name}.md" for name in ALGORITHMS],
        "Python": [f"reference/{name}.md" for name in REFERENCE],
    }
    for group in config.nav or []:
        for entry in group.get("Reference", []):
            for title in made.keys() & entry if isinstance(entry, dict) else ():
                entry[title] += made[title]
    anchors_of_algorithms.cache_clear()  # `make serve` builds again in one process
    config.copyright = f"Zoo {zoo.__version__} · {config.copyright}"


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that are made here."""
    pages = {f"algorithms/{name}.md": algorithm_page(name) for name in ALGORITHMS}
    pages |= {f"reference/{page}.md": reference_page(page) for page in REFERENCE}
    pages["command-line.md"] = command_line_page()
    pages["tuned-files.md"] = tuned_files_page()
    for path, page in ROOT_PAGES.items():
        if page == "index.md":  # which docs/ has
            continue
        pages[page] = for_site((REPOSITORY / path).read_text(), path)
    for path in linked_code():
        code = fenced((REPOSITORY / path).read_text(), ' linenums="1"')
        pages[f"code/{path}.md"] = f"---\nsearch: {{exclude: true}}\n---\n\n# {path}\n\n{code}\n"
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page in docs/; the page of all algorithms loses what has its own page."""
    if page.file.abs_src_path is None:  # made here
        return markdown
    source = f"docs/{page.file.src_uri}"
    if source == ALL_ALGORITHMS:
        kept = "".join(text for name, text in sections(markdown) if name not in ALGORITHMS)
        bases = bases_of(markdown)
        markdown = re.sub(r"^\| `(\w+)` \|", lambda match: row_with_link(match, bases), kept, flags=re.M)
    if source == "docs/gallery.md":
        markdown = markdown.replace("<!-- gallery -->", gallery())
    return for_site(markdown, source)


def bases_of(markdown: str) -> dict[str, str]:
    """Return the algorithm that each algorithm or preset builds on, from docs/algorithms.md."""
    presets = table_rows(markdown, "builds on")
    bases = {row["`algo=`"].strip("`"): row["builds on"].strip("`") for row in presets}
    return {name: name for name in ALGORITHMS} | bases


def row_with_link(row: re.Match[str], pages: dict[str, str]) -> str:
    """Link the name of an algorithm or a preset, in a table's first column, to its page."""
    name = row[1]
    return f"| [`{name}`]({ALL_ALGORITHMS[5:]}#{pages[name]}) |" if name in pages else row[0]


def algorithm_page(name: str) -> str:
    """Return the page of an algorithm and its presets."""
    text = (REPOSITORY / ALL_ALGORITHMS).read_text()
    (row,) = [row for row in table_rows(text, "presets") if row["`algo=`"] == f"`{name}`"]
    presets = [preset for preset in table_rows(text, "builds on") if preset["builds on"] == f"`{name}`"]
    names = [name, *(preset["`algo=`"].strip("`") for preset in presets)]
    facts = ("actions", "recurrent", "masks", "workers")
    section = dict(sections(text)).get(name, "").partition("\n")[2]
    section = re.sub(r"^##(#+ )", r"#\1", section, flags=re.M)
    section = section.replace("<!-- fields:", "## Hyperparameters\n\n<!-- fields:", 1)
    first_in_search = "---\nsearch: {boost: 2}\n---"
    parts = [first_in_search, f"# {name}", f"{row['what it is']}."]
    parts += [table([{fact: row[fact] for fact in facts}]), section.strip()]
    if presets:
        columns = ("`algo=`", "what it is")
        parts += ["## Presets", table([{key: preset[key] for key in columns} for preset in presets])]
    if scores := list(scores_of(names)):
        parts += ["## Scores", "What the columns are: [the collection](collection.md).", table(scores)]
        envs = dict.fromkeys(
            folder_name(env) for env, row in collection_rows() if row["algorithm"].strip("`") in names
        )
        parts += [
            f'<img src="../images/collection/{env}.png" loading="lazy" width="49%" alt="Curves: {env}">'
            for env in envs
        ]
    parts.append("## Python")
    parts += [directive(CLASS_NAMES[each], 3, members=False) for each in names]
    return for_site("\n\n".join(parts), ALL_ALGORITHMS, f"algorithms/{name}.md")


def scores_of(names: list[str]) -> Iterator[dict[str, str]]:
    """Yield the rows of docs/collection.md that are about these algorithms."""
    for env, row in collection_rows():
        if row["algorithm"].strip("`") in names:
            yield {"environment": f"[{env}](collection.md#{as_anchor(env, '-')})"} | row


def collection_rows() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield environment and row of each training of docs/collection.md."""
    for env, text in sections((REPOSITORY / COLLECTION).read_text()):
        for row in table_rows(text, "agent"):
            yield env, row


def gallery() -> str:
    """Return a card for each row of docs/collection.md, and the filters that site/gallery.js shows."""
    suites = re.findall(
        r"^\*\*(.+)\*\*\n\n\| algorithm \| (.+) \|$", (REPOSITORY / COLLECTION).read_text(), flags=re.M
    )
    families = {env: suite for suite, envs in suites for env in envs.split(" | ")}
    bases = bases_of((REPOSITORY / ALL_ALGORITHMS).read_text())
    scores = csv.DictReader((REPOSITORY / "docs/measured/scores.csv").read_text().splitlines())
    n_seeds = Counter((row["algo"], row["env"]) for row in scores)
    choices: dict[str, set[str]] = {"family": set(), "algorithm": set(), "actions": set()}
    cards = []
    for env, row in collection_rows():
        algo = row["algorithm"].strip("`")
        data = {"family": families[env], "algorithm": algo, "actions": kind_of_actions(env)}
        for name, values in choices.items():
            values.add(data[name])
        attributes = "".join(f' data-{name}="{value}"' for name, value in ({"env": env} | data).items())
        parts = card(algo, env, row["best"], n_seeds[algo, env], bases[algo])
        cards.append("\n".join([f'<section class="card"{attributes}>', *parts, "</section>"]))
    selects = [
        f'<label>{name} <select name="{name}"><option value="">all</option>'
        + "".join(f"<option>{value}</option>" for value in sorted(values))
        + "</select></label>"
        for name, values in choices.items()
    ]
    lines = ['<form class="filters" hidden>', *selects, '<output aria-live="polite"></output>', "</form>"]
    lines += ['<div class="cards">', *cards, "</div>", '<script src="site/gallery.js"></script>']
    return "\n".join(lines)


def card(algo: str, env: str, best: str, n_seeds: int, base: str) -> Iterator[str]:
    """Yield the lines of a card: film, names, score, command, links, and how the agent was made."""
    name, agent = folder_name(env), REPOSITORY / "trained_agents" / algo / folder_name(env)
    if (REPOSITORY / f"docs/images/collection/{name}.gif").exists():
        yield (
            f'<img src="images/collection/{name}.gif" loading="lazy" height="130"'
            f' alt="{env}: the best agent plays">'
        )
    yield f'<h2><a href="algorithms/{base}.html">{algo}</a> on {env}</h2>'
    seeds = f"{n_seeds} seeds" if n_seeds > 1 else "1 seed"
    size = sum(path.stat().st_size for path in agent.glob("*"))
    kept = f"{size / 1000:,.0f} kB" if size else "no agent kept"
    yield f"<p><b>{best.removesuffix(' ¹')}</b>, {seeds}, {kept}</p>"
    verb = "enjoy" if size else "train"
    yield f"<pre><code>zoo {verb} algo={algo} env={env}</code></pre>"
    yield (
        f'<p><a href="collection.html#{as_anchor(env, "-")}">scores</a> ·'
        f' <a href="images/collection/{name}.png">curve</a> ·'
        f' <a href="measured/curves/{algo}/{name}.csv">evaluations</a></p>'
    )
    if size:
        facts = json.loads((agent / "card.json").read_text())
        values = {key: facts[key] for key in ("timesteps", "seed", "created")} | facts["hyperparameters"]
        texts = {key: json.dumps(value).strip('"') for key, value in values.items()}
        lines = "\n".join(html.escape(f"{key}: {text}") for key, text in texts.items())
        yield f"<details><summary>Card</summary><pre>trained_agents/{algo}/{name}\n{lines}</pre></details>"


def kind_of_actions(env: str) -> str:
    """Return the kind of an environment's actions, as its agents have it; masked velocities change none."""
    agents = (REPOSITORY / "trained_agents").glob(f"*/{folder_name(env).replace('NoVel', '')}/config.yaml")
    text = next((path.read_text() for path in agents), None)
    if text is None:
        return "unknown"
    return "continuous" if re.search(r"^action_space:\n  type: Box$", text, flags=re.M) else "discrete"


def command_line_page() -> str:
    """Return a page with the help of each verb; what all have in common stands once, at the end."""
    parts, flags = ["# The command line"], ""
    for verb in VERBS:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            status_of([verb, "--help"])
        own, _, flags = printed.getvalue().partition("\nflags\n")
        parts.append(f"## zoo {verb}\n\n```text\n{own.rstrip()}\n```")
    return "\n\n".join([*parts, f"## Flags of all verbs\n\n```text\n{flags.rstrip()}\n```"])


def tuned_files_page() -> str:
    """Return a page with the environments that `hyperparams/` has files for, and their algorithms."""
    by_env: dict[str, list[str]] = {}
    for path in sorted((REPOSITORY / "hyperparams").glob("*/*.yaml")):
        by_env.setdefault(path.stem, []).append(f"`{path.parent.name}`")
    rows = [
        {"environment": f"`{env}`", "algorithms": ", ".join(names)} for env, names in sorted(by_env.items())
    ]
    text = (
        "`zoo train algo=NAME env=ID` uses the file where there is one. In names, `-` stands for `/` and `:`."
    )
    return "\n\n".join(["# Environments with tuned files", text, table(rows)])


def reference_page(page: str) -> str:
    """Return the page with the public names of some modules."""
    title, _ = REFERENCE[page]
    homes: dict[str, str] = vars(zoo)["_HOMES"]
    names = [name for name, home in homes.items() if name not in MODULES and page_of(home) == page]
    parts = [f"# {title}", *(directive(name, 2) for name in ["load"] * (page == "training") + names)]
    if page == "algorithm":
        links = [f"[`{CLASS_NAMES[name]}`](../algorithms/{name}.md)" for name in ALGORITHMS]
        parts.insert(1, f"The class of each algorithm: {', '.join(links)}. What they have in common:")
    return "\n\n".join(parts)


def page_of(module: str) -> str:
    """Return the page of the reference for the names of a module."""
    pages = [
        page
        for page, (_, modules) in REFERENCE.items()
        if any(f"{module}.".startswith(f"{each}.") for each in modules)
    ]
    if not pages:
        raise PluginError(f"{module} has public names and no page: add it to REFERENCE in {__file__}")
    return pages[0]


def directive(name: str, level: int, *, members: bool = True) -> str:
    """Return what mkdocstrings replaces by the signature and docstring of a public name, and its example."""
    options = {"heading_level": level, "inherited_members": name == "Algorithm"}
    text = f"::: zoo.{name}\n    options: {json.dumps(options if members else options | {'members': False})}"
    example = dict(sections((REPOSITORY / EXAMPLES).read_text())).get(name)
    return f"{text}\n\nExample: `{name}`\n{example.partition(chr(10))[2]}" if example else text


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield the title and text of each section; what stands before the first has no title."""
    for part in re.split(r"^(?=## )", text, flags=re.M):
        yield part.partition("\n")[0].removeprefix("## ") if part.startswith("## ") else "", part


def table_rows(text: str, heading: str) -> list[dict[str, str]]:
    """Return the rows of the first table that has a column of this name."""
    for lines in re.findall(r"(?:^\|.*\|\n)+", text, flags=re.M):
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines.splitlines()]
        if heading in rows[0]:
            return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]
    return []


def table(rows: list[dict[str, str]]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def for_site(markdown: str, source: str, page: str | None = None) -> str:
    """Rewrite links, formulas and lines that name code, of a file of the repository or a part of it."""
    start = dirname(page or place_on_site(source)[0])
    markdown = FORMULA.sub(with_mathml, markdown)

    def link(match: re.Match[str]) -> str:
        label, path, anchor = match[1], match[2], match[3] or ""
        target = normpath(join(dirname(source), path)) if path else source
        if (REPOSITORY / target).is_dir():
            return label
        place, anchor = place_on_site(target, anchor)
        return f"[{label}]({relpath(place, start or '.')}{anchor})"

    markdown = re.sub(r"\[([^][]*(?:\[[^][]*\][^][]*)*)\]\((?!\w+:)([^)#\s]*)(#[^)]*)?\)", link, markdown)
    return CODE.sub(lambda line: with_code(line, start or "."), markdown)


def with_mathml(formula: re.Match[str]) -> str:
    """Return a formula as MathML, which browsers draw without a script."""
    block, inline = formula.groups()
    source = block or inline
    text = mathml(source, display="block" if block else "inline") if source else "\\"
    if "\\" in text:
        raise PluginError(f"{formula[0]!r} is no formula that latex2mathml knows")
    text = re.sub("<msup>(<mi>.</mi>)<mi>(&#x02032;)</mi></msup>", r"<mrow>\1<mo>\2</mo></mrow>", text)
    text = re.sub("<mi>log</mi>(?!<mo stretchy)", '<mi>log</mi><mspace width="0.2em"/>', text)
    return text if block else f"<span>{text}</span>"  # not the first of a line, which is a block


def with_code(line: re.Match[str], start: str) -> str:
    """Return a line that names functions of a file, with links to their lines, and their source."""
    sources = []

    def link(name: re.Match[str]) -> str:
        number, source = source_of(str(line[1]), name[1])
        sources.append(source)
        return f'<a href="{relpath(f"code/{line[1]}.html", start)}#__codelineno-0-{number}">{name[0]}</a>'

    if line[1] is None:
        raise PluginError(f"{line[0]!r}: expected In the code: `NAME` and `NAME` in [FILE](../FILE).")
    text = re.sub(r"`([\w.]+)`", link, line[0])
    code = "\n\n".join(sources)
    return f"{text}\n\n{fenced(code)}"


def source_of(path: str, name: str) -> tuple[int, str]:
    """Return the first line's number, and the text without docstring, of a function or class in a file."""
    text = (REPOSITORY / path).read_text()
    node: Any = ast.parse(text)
    for part in name.split("."):
        nodes = [each for each in node.body if getattr(each, "name", None) == part]
        if not nodes:
            raise PluginError(f"{ALL_ALGORITHMS} shows {name}, which is not in {path}: name what replaced it")
        node = nodes[0]
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    if ast.get_docstring(node) is not None:
        docstring = node.body[0]
        del lines[docstring.lineno - node.lineno : docstring.end_lineno - node.lineno + 1]
    return node.lineno, dedent("\n".join(lines))


def fenced(source: str, options: str = "") -> str:
    return f"```python{options}\n{source.rstrip()}\n```"


def place_on_site(path: str, anchor: str = "") -> tuple[str, str]:
    """Return the page for a file of the repository, and the anchor on it."""
    if path == ALL_ALGORITHMS and anchor[1:] in anchors_of_algorithms():
        name = anchors_of_algorithms()[anchor[1:]]
        return f"algorithms/{name}.md", anchor if anchor[1:] != name else ""
    if path.startswith("docs/"):
        return path.removeprefix("docs/"), anchor
    return ROOT_PAGES.get(path, f"code/{path}.md"), anchor


@cache
def anchors_of_algorithms() -> dict[str, str]:
    """Return the algorithm for each anchor of docs/algorithms.md that is on an algorithm's page."""
    return {
        as_anchor(title, "-"): name
        for name, text in sections((REPOSITORY / ALL_ALGORITHMS).read_text())
        if name in ALGORITHMS
        for title in re.findall(r"^##+ (.+)$", text, flags=re.M)
    }


def linked_code() -> list[str]:
    """Return the Python files outside docs/ that pages link to."""
    texts = [path.read_text() for path in (REPOSITORY / "docs").rglob("*.md")]
    return sorted({path for text in texts for path in re.findall(r"\]\(\.\./([\w./-]+\.py)\)", text)})


class Declarations(griffe.Extension):
    """Document declared values by what `hyperparameter` says of them; hyperparameters have tables already."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        call = ast.parse(str(attr.value), mode="eval").body
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "hyperparameter":
            values = {word.arg: word.value for word in call.keywords}
            values |= dict(zip(("default", "help"), call.args, strict=False))
            factory = f"{ast.unparse(values['default_factory'])}()" if "default_factory" in values else None
            attr.value = ast.unparse(values["default"]) if "default" in values else factory
            attr.extra["zoo"]["help"] = help_text(values.get("help"))

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Make a table of a config's values, instead of a heading for each."""
        if cls.docstring:
            cls.docstring.value = cls.docstring.value.partition("\n\nHyperparameters:")[0]
            helps = {
                name: each.extra["zoo"].get("help") for name, each in cls.members.items() if each.is_attribute
            }
            lines = [f"    {name}: {text}" for name, text in helps.items() if text]
            cls.docstring.value += "\n\nArgs:\n" + "\n".join(lines) if lines else ""


def help_text(node: ast.expr | None) -> str:
    """Return a literal text; nothing of one that is put together at run time."""
    text = str(node.value) if isinstance(node, ast.Constant) else ""
    return text.replace("{_target_", r"{\_target_")  # or it is italic
