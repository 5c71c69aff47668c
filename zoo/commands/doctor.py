"""`zoo doctor`: what a bug report needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from zoo.config.fields import build
from zoo.config.inspecting import DoctorSettings
from zoo.files.printing import one_line, show


def run(config: Mapping[str, Any]) -> None:
    """Print what is known about this machine, as text or as one JSON object."""
    from zoo.training.diagnosis import diagnosis

    found = diagnosis()
    if build(DoctorSettings, config, "").format == "json":
        show(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for subject, what in found.items():
        if isinstance(what, Mapping):
            show(subject)
            width = max(map(len, what), default=0)
            for name, value in what.items():
                show(f"  {one_line(name):<{width}}  {one_line(value, 400)}")
        else:
            show(f"{subject}\n  {one_line('; '.join(what) if isinstance(what, list) else what, 400)}")
