"""What a job alone prints is on the terminal as it came, and in the log as it stood last."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PRINTING = """
import os, sys
from pathlib import Path
from zoo.launch.local import printed_and_logged
with printed_and_logged(Path("0.log")) as (stdout, stderr):
    print(os.isatty(stdout), flush=True)
    for part in (b"\\r\\x1b[2K10 steps", b"\\r\\x1b[2K20 ", b"steps\\n", b"\\x1b[1mscore\\x1b[0m 7\\n"):
        os.write(stdout, part)
"""


def printed_on(stdout: int) -> None:
    code = f"import sys; sys.path[:] = {sys.path!r}\n{PRINTING}"
    subprocess.run([sys.executable, "-c", code], stdout=stdout, check=True)


def test_progress_bar_is_live_on_a_terminal_and_one_line_in_the_log() -> None:
    terminal, end = os.openpty()
    printed_on(end)
    shown = os.read(terminal, 10_000)
    os.close(end)
    os.close(terminal)
    assert shown.startswith(b"True\r\n\r\x1b[2K10 steps\r\x1b[2K20 steps")
    assert Path("0.log").read_text() == "20 steps\nscore 7\n"


def test_what_goes_to_a_file_is_logged_as_it_is() -> None:
    with open("printed", "wb") as file:
        printed_on(file.fileno())
    assert Path("printed").read_bytes().startswith(b"False\n\r\x1b[2K10 steps")
    assert Path("0.log").read_bytes() == Path("printed").read_bytes().removeprefix(b"False\n")
