"""The two names in the section ``algo``: of the algorithm, and of the preset that was asked for, if any."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

ALGO_LABELS = ("name", "preset")
"""What stands in the section ``algo`` beside hyperparameters: the algorithm, and the preset if it is one."""

PRESET = re.compile(r"\w[\w.+-]{0,99}")
"""A preset is a file's name, and names folders."""


def asked_for(algo: Mapping[str, Any]) -> str:
    """Return what ``algo=`` was: folders, tables and messages call a run and its agent so."""
    return str(algo.get("preset") or algo["name"])
