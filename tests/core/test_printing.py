"""What an agent says cannot control the terminal."""

from __future__ import annotations

import ast
import io
from pathlib import Path

import pytest

import zoo
from zoo.agents.card import score
from zoo.commands.benchmark import table_of
from zoo.core.printing import decimal, printable, say, without_password


def test_printable_drops_escape_and_invisible_chars() -> None:
    attack = "a\x1b[2J\x1b]0;title\x07b\x9b31mc\x08\r\x00\x7f\u202ed\u2066e\u200bf\u2028g\ud800h"
    assert printable(attack) == "a[2J]0;titleb31mcdefgh"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("storage=postgresql://me:se@cr/et@host/db is full", "storage=postgresql://me:***@host/db is full"),
        ("a://x b://:p@h\nc+d://u:p@h", "a://x b://:***@h\nc+d://u:***@h"),
        ("file:///a://u:p@h", "file:///a://u:***@h"),
        ("h/db?user=u&sslPassword=s&x=1", "h/db?user=u&sslPassword=***&x=1"),
        ("see http://host:80/ and me@host, ://u:p@h", "see http://host:80/ and me@host, ://u:p@h"),
    ],
)
def test_passwords_of_urls_are_not_shown(text: str, shown: str) -> None:
    assert without_password(text) == shown


def test_returns_below_one_can_be_told_apart() -> None:
    assert [decimal(each) for each in (1234.56, 12.345, 0.12345, -0.5, 0)] == [
        "1,234.6", "12.35", "0.123", "-0.500", "0.00",
    ]  # fmt: skip
    played = {"mean_return": 0.043, "std_return": 0.012, "ci95": [0.036, 0.05], "iqm_return": 0.042}
    row = {**played, "algo": "sac", "env": "x", "agent": "y", "timesteps": 5, "n_episodes": 9}
    assert "| 0.043 ± 0.012 | 0.042 | 0.036 … 0.050 |" in table_of([row])
    assert score({**played, "n_eval_episodes": 9}) == "0.043 ± 0.012 over 9 episodes"


def test_a_line_and_its_end_are_written_in_one_piece() -> None:
    """Else the lines of several processes run into one another."""

    class Pieces(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    written: list[str] = []
    say("zoo: done", Pieces())
    assert [text for text in written if text] == ["zoo: done\n"]


PRINTS_ITSELF = {"core/printing.py", "cli.py"}
"""Where nothing of a file is printed, or what is comes from `printable`."""


def test_whatever_is_printed_goes_through_one_function() -> None:
    package = Path(zoo.__file__).parent
    found = [
        f"{path.relative_to(package)}:{node.lineno}"
        for path in package.rglob("*.py")
        if str(path.relative_to(package)) not in PRINTS_ITSELF
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "traceback.print_exc")
    ]
    assert not found, f"printed without show() or say(): {found}"
