"""Filming an agent while it plays: for `zoo record`, `zoo enjoy record=true` and videos of a training."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from zoo.agents.find import run_of
from zoo.envs.adapter import VecEnvAdapter, make_adapter
from zoo.envs.config import EnvConfig, without_workers
from zoo.envs.make_env import make_vec_env
from zoo.envs.registry import folder_name, in_env_folder
from zoo.envs.transition import EpisodeRecord
from zoo.envs.vec_env import SyncVecEnv
from zoo.envs.video import FASTEST_GIF, RecordFrames, Size, ffmpeg, filming, render_offscreen, to_rgb
from zoo.errors import ZooError
from zoo.experiment.evaluation import EvaluationCancelledError, Predictor, evaluate


def record(
    model: Predictor,
    env: EnvConfig,
    paths: Sequence[Path],
    *,
    size: Size | None = None,
    frames_per_second: float | None = None,
    n_episodes: int | None = None,
    length: int | None = None,
    deterministic: bool = True,
    seed: int | Sequence[int] | None = None,
    on_episode: Callable[[EpisodeRecord], None] | None = None,
    check: Callable[[VecEnvAdapter], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> int:
    """Film ``n_episodes`` episodes, or ``length`` images, or whichever comes first; one episode without both.

    Returns the number of images: without any there is no film. ``paths`` end in ``.mp4`` and ``.gif``; size
    and images a second are the environment's own where they are None. ``check`` is called with the
    environment before the first step. Ctrl-C ends a film, which stays; an error leaves none. If drawing or
    writing fails, raises `ZooError`; once ``cancelled()`` is true, `EvaluationCancelledError`.
    """
    ffmpeg()
    if (fps := frames_per_second or 0) > FASTEST_GIF and any(path.suffix == ".gif" for path in paths):
        raise ZooError(f"`fps={fps:g}`: a GIF has at most {FASTEST_GIF} images a second; format=mp4 more")
    with (
        rendering_env(env) as drawn,
        filming(paths, frames_per_second or drawn.metadata.get("render_fps"), size) as film,
    ):
        filmed = RecordFrames(drawn.envs[0], film, length)
        envs = make_adapter(SyncVecEnv([lambda: filmed], mask_actions=env.mask_actions))
        if check is not None:
            check(envs)
        try:
            evaluate(
                model,
                envs,
                n_episodes or length or 1,  # an episode has at least one image
                deterministic=deterministic,
                seed=seed,
                on_episode=on_episode,
                cancelled=lambda: filmed.is_complete or (cancelled is not None and cancelled()),
            )
        except EvaluationCancelledError:
            if not filmed.is_complete:
                raise
        except KeyboardInterrupt:
            if cancelled is not None:
                raise
    return film.n_frames


@contextlib.contextmanager
def rendering_env(env: EnvConfig) -> Iterator[SyncVecEnv]:
    """Give one environment that renders images. Raises a one-line `ZooError`."""
    render_offscreen()
    plain = replace(without_workers(env), render_mode="rgb_array", check=False)
    with explain_render_errors(env.id):
        try:
            envs = make_vec_env(plain, training=False)
        except ZooError as error:
            with contextlib.closing(make_vec_env(replace(plain, render_mode=None), training=False)) as envs:
                if "rgb_array" in (envs.metadata.get("render_modes") or ()):
                    raise error
        with contextlib.closing(envs):
            modes = envs.metadata.get("render_modes") or ()
            if not isinstance(envs, SyncVecEnv) or "rgb_array" not in modes:
                needed = 'metadata = {"render_modes": ["rgb_array"]}, the argument render_mode and render()'
                raise ZooError(f"can't film {env.id}: its class needs {needed}")
            yield envs


def check_rendering(env: EnvConfig) -> None:
    """Draw one image and encode nothing: what fails later does so here. Raises `ZooError`."""
    ffmpeg()
    with rendering_env(env) as envs, in_env_folder():
        try:
            envs.reset(seed=0)
            to_rgb(envs.render()[0], env.id)
        except ZooError:
            raise
        except Exception as error:
            raise ZooError(f"can't draw {env.id}: {error}") from error


@contextlib.contextmanager
def explain_render_errors(env_id: str) -> Iterator[None]:
    """Raise a one-line `ZooError` where an environment can't be rendered within the block."""
    from gymnasium.error import DependencyNotInstalled

    try:
        yield
    except ZooError as error:
        cause = error.__cause__
        if isinstance(cause, ZooError):
            raise cause from error
        if isinstance(cause, DependencyNotInstalled):
            raise ZooError(f"can't draw {env_id}: {cause}") from error
        if type(cause).__module__.startswith("pygame"):
            raise ZooError(f"can't open a window: {cause}; render=false plays without one") from error
        raise


def video_path(
    agent: Path | None, algo: str, env_id: str, suffix: str = "mp4", folder: Path | None = None
) -> Path:
    """Return a new file in ``folder``, else in ``videos`` of the agent's run or of the working folder."""
    run = None if agent is None else run_of(agent)
    folder = folder or (run or Path()) / "videos"
    return folder / f"{algo}-{folder_name(env_id)}-{datetime.datetime.now():%Y%m%d-%H%M%S}.{suffix}"
