"""The command `zoo`: finds the verb and hands over to it. Imports nothing heavy: help is there at once."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from collections.abc import Sequence

from zoo.core.printing import (
    discard_unwritten,
    prepare_streams,
    print_message,
    warnings_as_messages,
    without_password,
)
from zoo.errors import INTERRUPTED, MISTAKE, ZooError, nearest
from zoo.working_folder import forget_working_folder

VERBS = {
    "train": "train an agent: zoo train algo=ppo2 env=CartPole-v1",
    "enjoy": "watch an agent play: zoo enjoy algo=ppo2 env=CartPole-v1",
    "evaluate": "measure an agent: zoo evaluate algo=ppo2 env=CartPole-v1",
    "expert": "record what an agent does, to learn from it: zoo expert algo=ppo2 env=CartPole-v1",
    "agents": "list agents and show their cards: zoo agents",
    "check": "try an environment for a moment: zoo check env=my_module:MyEnv-v0",
    "plot": "draw runs, tabulate their scores, write a report: zoo plot runs/ppo2",
    "compare": "say which of two is better, and how sure that is: zoo compare runs/ppo2 runs/a2c",
    "import": "make an agent of Stable-Baselines3 one of Zoo's: zoo import FILE.zip env=CartPole-v1",
    "export": "write an agent's policy as ONNX or torch.export: zoo export algo=ppo2 env=CartPole-v1",
    "benchmark": "measure a collection of agents beside published scores: zoo benchmark",
    "push": "give an agent to others: zoo push agent=PATH to=USER/NAME",
    "pull": "get an agent of others: zoo pull from=USER/NAME",
    "tune": "search for hyperparameters: zoo tune algo=ppo2 env=CartPole-v1 n_trials=30",
    "record": "film an agent: zoo record algo=ppo2 env=CartPole-v1",
    "doctor": "say what a bug report needs: zoo doctor",
    "status": "show how the jobs of a sweep stand: zoo status",
}
"""What each verb does; each is a file in `zoo.commands`."""

COLUMNS = 79

MODULES = {"import": "import_"}
"""The files of verbs that are no names in Python."""


def main() -> None:
    """Run the command line and exit: 0 done, 2 a mistake that the user can mend, 130 interrupted."""
    forget_working_folder()
    prepare_streams()
    # While nothing is being learned, SIGTERM ends what is being done as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status = status_of(sys.argv[1:])
    # All is done: a signal on the way out does not change how it ended.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(status)


def status_of(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit status; a user's mistake is told in one message."""
    try:
        with warnings_as_messages():
            return run(arguments)
    except (ZooError, PermissionError) as error:
        if os.environ.get("ZOO_DEBUG") == "1":
            raise
        print_message(without_password(str(error)))
        return MISTAKE
    except KeyboardInterrupt:
        print_message("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        discard_unwritten()  # the reader of our output, such as `head`, has all it wanted
        return 0


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit status. Raises `ZooError`."""
    asks_for_help = bool(arguments) and arguments[0] in ("-h", "--help", "help")
    if not arguments or (asks_for_help and len(arguments) == 1):
        print(usage())
        return 0
    verb, *rest = [arguments[1], "--help", *arguments[2:]] if asks_for_help else arguments
    if verb in ("--completion", "--complete"):
        from zoo.config.keys import candidates, script
        from zoo.launch.help import flag_names

        print(script(rest) if verb == "--completion" else "\n".join(candidates(rest, VERBS, flag_names())))
        return 0
    if verb in ("-V", "--version", "version") or "--version" in rest:
        from importlib.metadata import version

        from zoo.version import __version__

        print(f"zoo {__version__}, Hydra {version('hydra-core')}")
        return 0
    try:
        if verb not in VERBS:
            hint = "; the verb comes first" if "=" in verb or verb.startswith("-") else nearest(verb, VERBS)
            raise ZooError(f"unknown verb '{verb}'{hint} (verbs: {', '.join(VERBS)})")
        from zoo.launch.command import run_command

        return run_command(verb, f"zoo.commands.{MODULES.get(verb, verb)}:run", rest)
    except ZooError:
        from zoo.interop.rl_zoo3 import refuse_foreign_line

        refuse_foreign_line(verb, rest)
        raise


def usage() -> str:
    """Return the page that `zoo --help` prints."""
    width = max(map(len, VERBS)) + 2
    verbs = "\n".join(
        textwrap.fill(
            description, COLUMNS, initial_indent=f"  {verb:<{width}}", subsequent_indent=" " * (width + 2)
        )
        for verb, description in VERBS.items()
    )
    return (
        "zoo: train, watch, measure and compare reinforcement-learning agents\n\n"
        f"  zoo VERB [key=value …]\n\n{verbs}\n\n"
        "zoo VERB --help lists what can be chosen and set, zoo --version the version;\n"
        "zoo --completion bash (or zsh, fish) prints what completes commands at a TAB.\n"
        "ZOO_DEBUG=1 shows where an error came from."
    )
