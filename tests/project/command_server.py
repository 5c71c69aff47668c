"""Runs command lines of the installed Zoo, each in a process of its own that has imported everything already.

Says that it is ready, then reads one JSON object a line: `arguments`, `folder`, and `output`, the file that
gets what is printed. Answers with the exit status. What is imported once here takes each command two seconds
less.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def main() -> None:
    import torch

    import zoo
    from zoo.cli import main as command_line

    for module in ("config.compose", "experiment.experiment", "envs.env_checker"):
        importlib.import_module(f"zoo.{module}")
    assert "site-packages" in (zoo.__file__ or ""), "not the installed Zoo"
    print("ready, with torch", torch.__version__, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            output = os.open(asked["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for descriptor, copy in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(descriptor, copy)
            os.chdir(asked["folder"])
            sys.argv = ["zoo", *asked["arguments"]]
            command_line()
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
