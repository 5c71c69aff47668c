"""Golden cells: short trainings that cover every algorithm × action space × option, and what comes of each.

A cell is a list of overrides, as `zoo train` takes them, and nothing else: it knows neither classes nor
modules. Networks are tiny and steps are few, so that a cell takes about half a second.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import toy_envs  # noqa: F401  # registers them
from gymnasium import spaces

import zoo

GOLDEN = Path(__file__).resolve().parent
RECORD = GOLDEN / "weights.json"
COMMAND = shlex.split(os.environ.get("ZOO_COMMAND", shlex.join([sys.executable, "-m", "zoo"])))
"""The command line that is judged; ZOO_COMMAND=venv/bin/zoo judges an installed one."""
SECONDS = 300
"""How long a process may take."""

COMMON = (
    "tuned=none seed=3 device=cpu threads=1 compile=false policy.net_arch=[16]"
    " verbose=0 progress_bar=false callbacks=none logger=csv logger.every=64"
)
ROLLOUTS = "n_envs=2 n_timesteps=512 algo.n_steps=32"
CLIPPED = f"{ROLLOUTS} algo.learning_rate=5e-3"  # large enough for ratios to be clipped
REPLAY = "n_timesteps=300 algo.learning_starts=64 algo.batch_size=16 algo.buffer_size=200"
VALUES = f"{REPLAY} algo.target_update_interval=50"
LSTM = "policy=MlpLstmPolicy policy.lstm_hidden_size=8"
CNN = "policy=CnnPolicy policy.features_dim=8"
IMAGES = f"env=Zoo/IdentityImage-v0 {CNN} n_timesteps=192"
GYM_NATIVE = "env.vectorization=native"
SDE = "algo.use_sde=true"
WORKERS = "env.vectorization=workers env.n_workers=2 n_envs=2"
GOALS = "env=Zoo/BitFlippingContinuous-v0 env.kwargs.n_bits=4"
NOISE = "{type: ornstein-uhlenbeck, std: 0.2}"

FAMILIES = {
    "ppo2": f"{CLIPPED} env=CartPole-v1",
    "ppo": f"{CLIPPED} env=Pendulum-v1 algo.batch_size=32 algo.n_epochs=3",
    "maskable_ppo": f"{CLIPPED} env=Zoo/Masked-v0 algo.batch_size=32 algo.n_epochs=3",
    "rsl_rl": f"{CLIPPED} env=Pendulum-v1 algo.n_epochs=3",
    "recurrent_ppo": f"{CLIPPED} env=CartPole-v1 algo.batch_size=32 algo.n_epochs=3 {LSTM}",
    "ppo1": f"{CLIPPED} env=CartPole-v1 algo.batch_size=32",
    "trpo": f"{ROLLOUTS} env=CartPole-v1 algo.batch_size=32",
    "a2c": "n_envs=2 n_timesteps=512 algo.n_steps=8 env=CartPole-v1",
    "acktr": "n_envs=2 n_timesteps=640 algo.n_steps=16 env=CartPole-v1",
    "acer": "n_envs=2 n_timesteps=512 algo.n_steps=16 env=CartPole-v1 algo.replay_start=64",
    "ars": "n_envs=2 n_timesteps=1500 env=CartPole-v1 algo.n_delta=2",
    "pqn": f"{CLIPPED} env=CartPole-v1 algo.batch_size=32",
    "dqn": f"{VALUES} env=CartPole-v1",
    "qrdqn": f"{VALUES} env=CartPole-v1 algo.n_quantiles=5",
    "iqn": (
        f"{VALUES} env=CartPole-v1 algo.n_quantiles=5 algo.n_target_quantiles=4 algo.n_acting_quantiles=3"
        " policy.net_arch=[8,8]"
    ),
    "c51": f"{VALUES} env=CartPole-v1 algo.n_atoms=11 algo.value_range=[0,20]",
    "rainbow": f"{VALUES} env=CartPole-v1 algo.n_atoms=11 algo.value_range=[0,20]",
    "ddpg": f"{REPLAY} env=Pendulum-v1 algo.train_freq=20 algo.gradient_steps=10",
    "td3": f"{REPLAY} env=Pendulum-v1 algo.train_freq=1 algo.gradient_steps=1",
    "fast_td3": f"{REPLAY} env=Pendulum-v1 algo.train_freq=2 algo.n_atoms=11",
    "sac": f"{REPLAY} env=Pendulum-v1",
    "tqc": f"{REPLAY} env=Pendulum-v1 algo.n_quantiles=5 algo.top_quantiles_to_drop_per_net=1",
    "crossq": f"{REPLAY} env=Pendulum-v1",
    "droq": f"{REPLAY} env=Pendulum-v1 algo.train_freq=8 algo.policy_delay=3",
    "redq": f"{REPLAY} env=Pendulum-v1 algo.train_freq=8 algo.n_critics=4 algo.policy_delay=6",
    "simba": f"{REPLAY} env=Pendulum-v1 policy.actor.net_arch=[8] policy.critic.net_arch=[8,8]",
    "simba_v2": f"{REPLAY} env=Pendulum-v1 policy.net_arch=[8]",
    "her_dqn": f"{VALUES} env=Zoo/BitFlipping-v0 env.kwargs.n_bits=4",
    "her_sac": f"{REPLAY} {GOALS}",
    "her_td3": f"{REPLAY} {GOALS} algo.train_freq=1 algo.gradient_steps=1",
    "her_ddpg": f"{REPLAY} {GOALS} algo.train_freq=20 algo.gradient_steps=10",
    "her_tqc": f"{REPLAY} {GOALS}",
    "bc": "env=CartPole-v1 dataset=CartPole-v1.npz n_timesteps=2000",
    "gail": "n_envs=2 n_timesteps=512 env=CartPole-v1 dataset=CartPole-v1.npz algo.n_steps=64",
}
"""What every cell of an algorithm has, unless it says otherwise."""

CELLS = {
    # Every algorithm, and every space of actions that it takes.
    "ppo2": "",
    "ppo2 box": "env=Pendulum-v1",
    "ppo2 multi-discrete": "env=Zoo/IdentityMultiDiscrete-v0",
    "ppo2 multi-binary": "env=Zoo/IdentityMultiBinary-v0",
    "ppo2 parts": "env=Zoo/Composite-v0",
    "ppo2 desired kl": "env=Pendulum-v1 algo.desired_kl=0.01 algo.rpo_alpha=0.1",
    "ppo2 value normalization": "env=Pendulum-v1 algo.value_normalization=true",
    "ppo2 critic observations": (
        "env=Zoo/BitFlipping-v0 env.kwargs.n_bits=4 policy=MultiInputPolicy"
        " policy.critic.observations=[desired_goal]"
    ),
    "ppo2 symmetry": "env=Pendulum-v1 algo.symmetry={_target_:toy_envs.mirrored_pendulum,mode:loss}",
    "rsl_rl": "",
    "ppo2 rnd": "intrinsic=rnd intrinsic.features_dim=8 intrinsic.batch_size=32 intrinsic.coef=1",
    "a2c rnd": "intrinsic=rnd intrinsic.features_dim=8 intrinsic.batch_size=8 intrinsic.value_head=false",
    "ppo": "",
    "maskable_ppo": "",
    "recurrent_ppo": "",
    "ppo1": "",
    "ppo1 box": "env=Pendulum-v1",
    "ppo1 parts": "env=Zoo/Composite-v0",
    "trpo": "",
    "trpo box": "env=Pendulum-v1",
    "trpo multi-discrete": "env=Zoo/IdentityMultiDiscrete-v0",
    "a2c": "",
    "a2c box": "env=Pendulum-v1",
    "a2c multi-binary": "env=Zoo/IdentityMultiBinary-v0",
    "acktr": "",
    "acktr box": "env=Pendulum-v1 algo.kfac_inverse=cholesky",
    "acktr multi-discrete": "env=Zoo/IdentityMultiDiscrete-v0",
    "acer": "",
    "acer box": "env=Pendulum-v1",
    "ars": "policy=LinearPolicy ~policy.net_arch",
    "ars box": "env=Pendulum-v1 n_timesteps=3000",
    "ars multi-binary": "env=Zoo/IdentityMultiBinary-v0 n_timesteps=600",
    "pqn": "",
    "pqn lstm": LSTM,
    "pqn masks": "env=Zoo/Masked-v0 env.normalize=true",
    "pqn images": f"env=Zoo/IdentityImage-v0 {CNN} n_timesteps=192",
    "pqn boards": "env=Zoo/IdentityBoard-v0 policy.features_dim=8",
    "pqn dictionary": "env=Zoo/BitFlipping-v0 env.kwargs.n_bits=4 policy=MultiInputPolicy",
    "dqn": "",
    "qrdqn": "",
    "iqn": "",
    "iqn double": (
        "env=Zoo/Masked-v0 algo.double=true algo.dueling=true algo.noisy=true replay=prioritized"
        " replay.n_step=2"
    ),
    "iqn hindsight": (
        "env=Zoo/BitFlipping-v0 env.kwargs.n_bits=4 policy=MultiInputPolicy replay=hindsight"
        " algo.munchausen={}"
    ),
    "c51": "",
    "rainbow": "",
    "rainbow masks": "env=Zoo/Masked-v0 n_envs=2 algo.value_range=[-5,5]",
    "qrdqn munchausen": "algo.munchausen={} env=Zoo/Masked-v0",
    "dqn noisy": "algo.noisy=true algo.munchausen={tau:0.1}",
    "ddpg": "",
    "td3": "",
    "fast_td3": "",
    "sac": "",
    "sac discrete": "env=CartPole-v1",
    "sac multi-discrete": "env=Zoo/IdentityMultiDiscrete-v0 algo.policy_delay=2",
    "tqc": "",
    "crossq": "",
    "droq": "",
    "redq": "",
    "simba": "",
    "simba_v2": "",
    "td3 unit norm": "policy.projection=unit_norm",
    "sac resets": "algo.critic_reset_every=[90,120] algo.optimizer=radam algo.betas=[0.8,0.99]",
    "sac categorical": "algo.critic_loss=categorical algo.n_atoms=11 env.normalize={rewards:scaled}",
    "td3 categorical": "algo.critic_loss=categorical algo.value_range=[-500,0] algo.n_critics=3",
    "bc": "",
    "bc box": "env=Pendulum-v1 dataset=Pendulum-v1.npz",
    "gail": "",
    "gail ppo2 box": "env=Pendulum-v1 dataset=Pendulum-v1.npz algo.generator=ppo2",
    # Recurrence.
    "ppo2 gru": f"{LSTM} policy.recurrent=gru algo.chunk_length=8",
    "ppo1 lstm": LSTM,
    "recurrent_ppo shared box": "env=Pendulum-v1 policy.critic_lstm=shared",
    "a2c lstm": f"{LSTM} policy.critic_lstm=detached env.mask_velocities=true",
    "trpo lstm": f"{LSTM} policy.n_lstm_layers=2",
    "acktr lstm": LSTM,
    "acer lstm": f"{LSTM} policy=MlpLnLstmPolicy",
    # Masks, also of several choices, with a memory, and in replay.
    "ppo2 masks parts": "env=Zoo/MaskedComposite-v0",
    "a2c masks multi-discrete": "env=Zoo/MaskedMultiDiscrete-v0",
    "trpo masks multi-binary": "env=Zoo/MaskedMultiBinary-v0",
    "recurrent_ppo masks": "env=Zoo/MaskedMemory-v0",
    "acer masks": "env=Zoo/Masked-v0",
    "acktr masks": "env=Zoo/Masked-v0",
    "dqn masks": "env=Zoo/Masked-v0 replay.n_step=2",
    "qrdqn masks": "env=Zoo/Masked-v0",
    "sac masks": "env=Zoo/Masked-v0 replay.n_step=2",
    "sac masks multi-discrete": "env=Zoo/MaskedMultiDiscrete-v0 replay=prioritized",
    # Dictionaries, images, discrete observations.
    "ppo2 dictionary": "env=Zoo/IdentityDict-v0 policy=MultiInputPolicy policy.features_dim=8",
    "dqn dictionary": "env=Zoo/BitFlipping-v0 env.kwargs.n_bits=4 policy=MultiInputPolicy",
    "recurrent_ppo dictionary": (
        "env=Zoo/IdentityDict-v0 policy=MultiInputLstmPolicy policy.features_dim=8 n_timesteps=128"
    ),
    "ppo2 images": IMAGES,
    "a2c images": f"{IMAGES} policy=LnCnnPolicy",
    "sac images": f"{IMAGES} algo.optimize_memory_usage=true",
    "dqn images": f"{IMAGES} algo.optimize_memory_usage=true",
    "acktr images": f"{IMAGES} algo.cold_updates=2 algo.kfac_update=2",
    "acer images lstm": f"{IMAGES} policy=CnnLnLstmPolicy policy.lstm_hidden_size=8",
    "ppo2 images lstm": f"{IMAGES} policy=CnnLstmPolicy policy.lstm_hidden_size=8 algo.chunk_length=8",
    "ppo2 atari": f"env=ALE/Pong-v5 {CNN} n_timesteps=128",
    "ppo2 discrete observations": "env=FrozenLake-v1",
    "dqn discrete observations": "env=FrozenLake-v1",
    # State-dependent exploration.
    "ppo2 sde": f"env=Pendulum-v1 {SDE} algo.sde_sample_freq=4",
    "a2c sde": f"env=Pendulum-v1 {SDE}",
    "sac sde": f"{SDE} algo.train_freq=8 algo.gradient_steps=8",
    "tqc sde": f"{SDE} algo.sde_sample_freq=4",
    # Replay: prioritised, hindsight, returns of several steps; how exploration is done.
    "dqn prioritized": "replay=prioritized replay.n_step=3",
    "qrdqn prioritized": "replay=prioritized algo.double=false algo.dueling=false",
    "sac prioritized": "replay=prioritized",
    "td3 n-step": "replay.n_step=3 env.normalize=true",
    "dqn parameter noise": "algo.parameter_noise=true policy=LnMlpPolicy",
    "ddpg parameter noise": (
        "algo.parameter_noise={} policy=LnMlpPolicy algo.normalize_returns=true algo.enable_popart=true"
    ),
    "td3 noise": f"algo.action_noise={NOISE} n_envs=2 algo.train_freq=2",
    "dqn episodes": "algo.train_freq=[1,episode] algo.gradient_steps=-1",
    "sac fixed entropy": "algo.ent_coef=0.1 algo.optimize_memory_usage=true",
    "her_dqn": "",
    "her_sac": "",
    "her_sac discrete": "env=Zoo/BitFlipping-v0",
    "her_td3": "replay.n_step=2",
    "her_ddpg": "",
    "her_tqc": "replay=[prioritized,hindsight]",
    # Environments: normalised, several processes, next-step autoreset, wrappers.
    "ppo2 normalize": "env=Pendulum-v1 env.normalize=true",
    "a2c normalize": "env.normalize=true",
    "ars normalize": "env.normalize=true",
    "sac normalize": "env.normalize=true",
    "ppo2 env workers": WORKERS,
    "sac env workers": WORKERS,
    "ppo2 next-step": f"{GYM_NATIVE} n_envs=4",
    "a2c next-step": f"{GYM_NATIVE} n_envs=4 env.normalize=true",
    "dqn next-step": f"{GYM_NATIVE} n_envs=4",
    "trpo next-step lstm": f"{GYM_NATIVE} {LSTM} n_timesteps=128",
    "ppo2 wrappers": "env.frame_stack=2 env.time_feature=true env.action_repeat=2",
    "sac history": "env.history=2 env.max_episode_steps=50",
    # Several processes that learn as one.
    "ppo2 workers": "workers=2",
    "sac workers": "workers=2",
    # Schedules, targets, bounds, cloning.
    "ppo2 schedules": (
        "algo.learning_rate=lin_1e-2 algo.clip_range=lin_0.2 algo.clip_range_vf=null algo.target_kl=0.01"
        " algo.ent_coef=0.05 algo.normalize_advantage=false"
    ),
    "ppo2 pretrained": "pretrain.dataset=CartPole-v1.npz pretrain.n_epochs=3",
    "a2c gae": "algo.gae_lambda=0.9 algo.rms_prop_tensorflow=false algo.normalize_advantage=true",
}
"""Each cell by its name, whose first word is the algorithm, with what it has of its own."""

ALIKE = (
    *("prioritized", "fixed entropy", "episodes", "n-step", "workers", "next-step", "schedules"),
    *("pretrained", "gae", "atari", "ppo2 images", "acktr images", "images lstm", "ppo2 dictionary"),
    *("acktr lstm", "ppo1 lstm", "ppo1 parts", "acktr masks", "acer masks", "qrdqn masks", "2c normalize"),
    *("resets", "pqn images", "pqn dictionary", "ppo2 symmetry"),
)
"""Cells whose names have one of these make agents as others do, and large ones: none of them is kept."""

COMPILED = ("ppo2", "dqn")
COMPILED_SLOWLY = (
    "ppo2 desired kl",
    "ppo2 value normalization",
    "ppo2 symmetry",
    "ppo2 rnd",
    "sac",
    "sac discrete",
    "sac masks multi-discrete",
    "rainbow",
    "iqn",
    "iqn double",
    "dqn noisy",
    "sac resets",
    "sac categorical",
    "crossq",
    "pqn",
    "droq",
    "redq",
    "simba",
    "simba_v2",
    "fast_td3",
    "a2c box",
    "td3 n-step",
    "trpo box",
    "acktr",
    "ppo2 next-step",
)
"""Cells whose compiled updates are held against the eager ones."""

KILLED = {
    "ppo2 normalize": "n_timesteps=6144",
    "ppo2 desired kl": "n_timesteps=4096",
    "ppo2 value normalization": "n_timesteps=4096",
    "ppo2 rnd": "n_timesteps=4096",
    "trpo": "n_timesteps=4096",
    "dqn prioritized": "n_timesteps=1500",
    "rainbow": "n_timesteps=1500",
    "iqn double": "n_timesteps=1500",
    "sac env workers": "n_timesteps=1200",
    "sac discrete": "n_timesteps=900",
    "a2c lstm": "n_timesteps=2048",
    "her_tqc": "n_timesteps=900",
    "crossq": "n_timesteps=900",
    "pqn lstm": "n_timesteps=4096",
    "droq": "n_timesteps=900",
    "simba": "n_timesteps=900",
    "simba_v2": "n_timesteps=900",
    "fast_td3": "n_timesteps=900",
    "sac resets": "n_timesteps=900 algo.critic_reset_every=250",
}
"""Cells that are killed at a checkpoint and resumed, with what makes them long enough for that."""


def overrides(name: str, *more: str) -> list[str]:
    """Return the whole command line of a cell; what is said later takes the place of what was said before."""
    algorithm = name.partition(" ")[0]
    said: dict[str, str] = {}
    for text in (f"algo={algorithm}", COMMON, FAMILIES[algorithm], CELLS[name], *more):
        for override in _split(text):
            said[override.partition("=")[0]] = override
    for left_out in [key for key in said if key.startswith("~")]:
        del said[left_out], said[left_out[1:]]
    return list(said.values())


def _split(text: str) -> Iterator[str]:
    """Yield the overrides of a text: a space within braces belongs to a value."""
    override = ""
    for word in text.split():
        override = f"{override} {word}" if override else word
        if override.count("{") == override.count("}"):
            yield override
            override = ""


@contextlib.contextmanager
def working_folder() -> Iterator[Path]:
    """Work in an empty folder that has the experts' files, and leave it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for env, expert in (("CartPole-v1", _balance), ("Pendulum-v1", _swing)):
                data = zoo.record_expert(expert, env, n_episodes=2, seed=0)
                zoo.write_expert(f"{env}.npz", data)
            yield Path(folder)
        finally:
            os.chdir(before)


def _balance(observation: np.ndarray) -> int:
    return int(observation[2] + observation[3] > 0)


def _swing(observation: np.ndarray) -> np.ndarray:
    return np.clip(-2.0 * observation[1:2] - 0.5 * observation[2:3], -2.0, 2.0)


def train(name: str, *more: str) -> Any:
    """Train a cell in this process; return the result that `zoo.train` gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return zoo.train(*overrides(name, *more))


def outcome(result: Any) -> dict[str, Any]:
    """Return what came of a training: an exact hash, and numbers that other processors come to as well."""
    arrays = [np.ascontiguousarray(array) for array in result.algorithm.get_parameters().values()]
    digests = sorted(
        hashlib.sha256(repr(array.shape).encode() + array.tobytes()).digest() for array in arrays
    )
    return {
        "hash": hashlib.sha256(b"".join(digests)).hexdigest()[:16],
        "weights": float(sum(np.abs(array.astype(np.float64)).sum() for array in arrays)),
        "metrics": metrics(Path(result.run.path)),
        "actions": actions(zoo.load(result.agent)),
    }


def metrics(run: Path) -> dict[str, float]:
    """Return the last numbers of a run's log, but for those of the clock."""
    with (run / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    last = {key: value for row in rows for key, value in row.items() if value}
    return {key: float(value) for key, value in sorted(last.items()) if not key.startswith("time/")}


def actions(model: Any, n: int = 8) -> Any:
    """Return what an agent does, seeing ``n`` fixed observations, one after the other if it remembers."""
    seen = [observation(model.observation_space, i) for i in range(n)]
    width = sum(choices(model.action_space))
    taken, state = [], None
    for i, one in enumerate(seen):
        # An agent that learned with masks is asked with masks, and one without does not mind them.
        mask = {"action_masks": _mask(model.action_space, i)} if width and i % 2 else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            action, state = model.predict(one, state, deterministic=True, **mask)
        taken.append(plain(action))
    return taken


def observation(space: spaces.Space[Any], i: int) -> Any:
    """Return the i-th fixed observation of a space: no generator has a part in it."""
    if isinstance(space, spaces.Dict):
        return {key: observation(part, i) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(observation(part, i) for part in space)
    if isinstance(space, spaces.Discrete):
        return np.int64(space.start + i % space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return (i % space.nvec).astype(space.dtype)
    numbers = np.arange(int(np.prod(space.shape)), dtype=np.float64).reshape(space.shape)
    if isinstance(space, spaces.MultiBinary):
        return ((numbers + i) % 2).astype(space.dtype)
    assert isinstance(space, spaces.Box)
    if space.dtype == np.uint8:
        return ((numbers * 7 + i * 31) % 256).astype(np.uint8)
    bounds = np.clip(space.low, -2.0, None), np.clip(space.high, None, 2.0)
    return np.clip(2.0 * np.sin(numbers * 1.7 + i * 0.9), *bounds).astype(space.dtype)


def choices(space: spaces.Space[Any]) -> list[int]:
    """Return how many alternatives each choice of an action has, in the order of masks."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.values() if isinstance(space, spaces.Dict) else space
        return [n for part in parts for n in choices(part)]
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(n) for n in space.nvec.reshape(-1)]
    return [2] * int(np.prod(space.shape)) if isinstance(space, spaces.MultiBinary) else []


def _mask(space: spaces.Space[Any], i: int) -> np.ndarray:
    """Return the i-th fixed mask, by which every other alternative is valid."""
    return np.concatenate(
        [(np.arange(n) + i) % 2 == 0 if n > 1 else np.ones(1, bool) for n in choices(space)]
    )


def plain(action: Any) -> Any:
    """Return an action as JSON has it."""
    if isinstance(action, dict):
        return {key: plain(part) for key, part in action.items()}
    return [plain(part) for part in action] if isinstance(action, tuple) else np.asarray(action).tolist()


def differences(ours: Any, theirs: Any, tolerance: float, place: str = "") -> list[str]:
    """Return in words where values of JSON differ from ours: whole numbers at all, others by more than that.

    They may have keys more than ours have.
    """
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() <= theirs.keys():
        return [d for key in ours for d in differences(ours[key], theirs[key], tolerance, f"{place} {key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [d for i, (one, other) in pairs for d in differences(one, other, tolerance, f"{place}[{i}]")]
    if isinstance(ours, float) and isinstance(theirs, float):
        near = bool(np.isclose(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True))
        return [] if near else [f"{place}: {theirs!r}, not {ours!r}"]
    return [] if ours == theirs else [f"{place}: {theirs!r}, not {ours!r}"]


def environment() -> dict[str, str]:
    """Return the variables that a command gets: it finds the package that is judged in any folder."""
    package = str(Path(zoo.__file__ or "").parents[1])
    path = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {} if "ZOO_COMMAND" in os.environ else {"PYTHONPATH": os.pathsep.join(path)}
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **own}


def machine() -> str:
    """Return what sums of floating-point numbers depend on, to the last bit."""
    facts: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "cpu family", "model", "stepping"):
                facts.setdefault(key.strip(), value.strip())
    vectors = torch.backends.cpu.get_cpu_capability()
    return ", ".join([*facts.values(), vectors, f"torch {torch.__version__}", f"numpy {np.__version__}"])


def read_record() -> dict[str, Any]:
    """Return what was recorded of each cell: its outcome, and on which machine."""
    found: dict[str, Any] = json.loads(RECORD.read_text())
    return found
