"""Run folders written by hand, of any content, as fast as files are written."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml


def make_run(
    root: Path,
    algo: str = "ppo2",
    env: str = "CartPole-v1",
    seed: int = 1,
    *,
    returns: Sequence[float] = (10.0, 20.0, 30.0, 40.0),
    lengths: Sequence[int] | None = None,
    evaluations: Mapping[int, Sequence[float]] | None = None,
    progress: Mapping[str, Sequence[float]] | None = None,
    status: str = "finished",
    config: Mapping[str, Any] | None = None,
    record: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Path:
    """Write ``root/algo/env/<name or s<seed>>``: one environment's episodes, and what else is given."""
    path = root / algo / env.replace("/", "-") / (name or f"s{seed}")
    (path / "monitor").mkdir(parents=True)
    lengths = [10] * len(returns) if lengths is None else lengths
    whole = {"n_timesteps": 1000, "n_envs": 1, "seed": seed, "job": None, "runs_dir": str(root)}
    whole |= {"verbose": seed, "algo": {"name": algo, "learning_rate": 0.001, "gamma": 0.99}}
    whole |= {"env": {"id": env}, "logger": {"csv": True}}
    (path / "config.yaml").write_text(yaml.safe_dump({**whole, **(config or {})}, sort_keys=False))
    seconds = {"env": 2.0, "policy": 1.0, "update": 5.0, "evaluation": 2.0, "compiling": 0.0}
    values = {"status": status, "seed": seed, "timesteps": int(np.sum(lengths)), "seconds": seconds}
    values |= {"command": f"zoo train algo={algo} env={env} seed={seed}", "steps_per_second": 1000.0}
    values |= {"versions": {"zoo": "1", "torch": "2"}, "git_commit": "0123abc"}
    (path / "run.json").write_text(json.dumps({**values, **(record or {})}))
    write_monitor(path / "monitor" / "0.monitor.csv", returns, lengths, env)
    if evaluations is not None:
        (path / "evaluations.npz").write_bytes(npz(evaluations))
    if progress is not None:
        rows = [progress, *zip(*progress.values(), strict=True)]
        (path / "progress.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


def write_monitor(path: Path, returns: Sequence[float], lengths: Sequence[int], env: str) -> None:
    seconds = np.cumsum(lengths) / 100
    rows = "".join(f"{r},{n},{t}\n" for r, n, t in zip(returns, lengths, seconds, strict=True))
    path.write_text(f"#{json.dumps({'t_start': 0.0, 'env_id': env})}\nr,l,t\n{rows}")


def npz(evaluations: Mapping[int, Sequence[float]], **others: Any) -> bytes:
    file = io.BytesIO()
    results = np.array(list(evaluations.values()), np.float64)
    columns = {"timesteps": np.array(list(evaluations)), "ep_lengths": np.full(results.shape, 10)}
    np.savez(file, results=results, **columns, **others)
    return file.getvalue()


def learning(seed: int, goal: float = 100.0, n: int = 5) -> dict[int, list[float]]:
    """Return evaluations that rise to a goal, a little different for each seed."""
    rng = np.random.default_rng(seed)
    return {
        step: [goal * step / (n * 100) + float(noise) for noise in rng.normal(0, 2, 10)]
        for step in range(100, 100 * n + 1, 100)
    }
