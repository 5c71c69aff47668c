"""What an agent says cannot control the terminal."""

from __future__ import annotations

from zoo.files.printing import first_and_last, one_line, printable


def test_escape_sequences_and_invisible_characters_vanish() -> None:
    attack = "a\x1b[2J\x1b]0;title\x07b\x9b31mc\x08\r\x00\x7f\u202ed\u2066e\u200bf\u2028g\ud800h"
    assert printable(attack) == "a[2J]0;titleb31mcdefgh"


def test_ordinary_text_stays() -> None:
    text = "# Karte\n\n| Größe | 3 µm – ± 5 % |\n中文 ✓ 🎮"
    assert printable(text) == text
    assert printable("a\tb\r\nc") == "a    b\nc"


def test_long_text_is_cut() -> None:
    assert printable("x" * 100, limit=10) == "x" * 10 + "…"
    assert printable("x" * 10, limit=10) == "x" * 10


def test_one_line_has_one_line() -> None:
    assert one_line("a\n\n  b\x1b\tc") == "a b c"
    assert len(one_line("x" * 10**6)) < 300


def test_of_a_traceback_the_first_and_the_last_line_are_shown() -> None:
    assert first_and_last("env 0 raised ValueError:\nTraceback\n  File\nValueError: no") == (
        "env 0 raised ValueError: ValueError: no"
    )
    assert first_and_last("alone") == "alone"
    assert first_and_last("") == ""
