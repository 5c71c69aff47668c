"""An agent's config, and every form in which a stranger could hide code in an agent's files."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np

CONFIG: dict[str, Any] = {
    "algo": {"name": "ppo2", "learning_rate": "lin_3e-4", "clip_range": 0.2, "target_kl": None},
    "policy": {"name": "MlpPolicy", "net_arch": [64, 64], "activation": None, "_target_": None},
    "env": {"id": "CartPole-v1", "kwargs": {}, "wrappers": [], "normalize": True, "n_workers": None},
    "n_envs": 8,
    "observation_space": {"type": "Box", "shape": [4], "low": -1.0, "high": 1.0, "dtype": "float32"},
    "action_space": {"type": "Discrete", "n": 2, "start": 0},
}


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (os.fspath(self.marker),))


def payloads(marker: Path) -> dict[str, bytes]:
    """Return every form in which a pickle is known to travel among agents, and YAML's and Hydra's own."""
    import torch

    payload = Payload(marker)
    torch_zip, torch_legacy, array = io.BytesIO(), io.BytesIO(), io.BytesIO()
    torch.save(payload, torch_zip)
    torch.save(payload, torch_legacy, _use_new_zipfile_serialization=False)
    np.save(array, np.array([payload], dtype=object), allow_pickle=True)
    return {
        "pickle": pickle.dumps(payload),
        "pickle as text": pickle.dumps(payload, protocol=0),
        "torch.save": torch_zip.getvalue(),
        "torch.save, before its zip": torch_legacy.getvalue(),
        "np.save": array.getvalue(),
        "YAML tag": f"!!python/object/apply:os.mkdir ['{marker}']\n".encode(),
        "YAML tag within": f"algo: !!python/object/apply:os.mkdir ['{marker}']\n".encode(),
        "Hydra node": f"_target_: os.mkdir\npath: '{marker}'\n".encode(),
    }
