"""Record what comes of the golden cells, when a change of it is wanted. It takes about two minutes.

    python tests/golden/record.py              # all cells; agents of format 1 that are not there yet
    python tests/golden/record.py ppo2 "sac sde"   # these cells only

Agents that are there are frozen: they are never written again, only what those of these cells do is recorded
anew. Whoever wants others deletes `tests/golden/agents/` first.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).parents[1]))  # toy_envs

from cells import ALIKE, CELLS, GOLDEN, RECORD, actions, machine, outcome, read_record, train, working_folder

import zoo

AGENTS = GOLDEN / "agents"
ACTIONS = GOLDEN / "agents.json"


def main(names: list[str]) -> None:
    record = read_record() if names and RECORD.exists() else {"cells": {}}
    with working_folder():
        for name in names or CELLS:
            started = time.perf_counter()
            result = train(name)
            record["cells"][name] = {"machine": machine(), **outcome(result)}
            agent = AGENTS / name.replace(" ", "_")
            if not agent.exists() and not any(part in name for part in ALIKE):
                shutil.copytree(result.agent, agent)
            cells = {each: record["cells"][each] for each in CELLS if each in record["cells"]}
            write(RECORD, {"cells": cells})
            print(f"{time.perf_counter() - started:5.1f} s  {name}", flush=True)
    asked = {name.replace(" ", "_") for name in names}
    acting = json.loads(ACTIONS.read_text()) if names else {}
    acting |= {
        path.name: actions(zoo.load(path)) for path in AGENTS.iterdir() if not names or path.name in asked
    }
    write(ACTIONS, dict(sorted(acting.items())))


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
