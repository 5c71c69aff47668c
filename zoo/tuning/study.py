"""Beginning a study, or going on with one: only with the settings that it was begun with."""

from __future__ import annotations

import contextlib
import json
import shutil
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial

from zoo.envs.seeds import random_seed
from zoo.errors import ZooError
from zoo.files.printing import one_line, without_password
from zoo.tuning.plan import Plan, differences
from zoo.tuning.shared_study import COMMANDS, SharedStudy, counted, is_anyone_there
from zoo.tuning.storages import Storage, open_existing, open_storage
from zoo.tuning.stored import DAMAGED, complete_trials, refuse_damaged, unreadable

SETTINGS, SEED = "settings", "seed"
ORIGIN = "origin"
"""Of a trial whose values did not come from the sampler: where they are from."""

WARM_TRIALS = 5
"""Trials of another study that a warm start takes."""

TOP = "/top"
"""How the name of the second study ends, in which the best trials are trained again."""


@dataclass
class FirstTrial:
    """What the queue of a study begins with, and where its values are from."""

    parameters: dict[str, Any]
    origin: str


def open_study(plan: Plan) -> tuple[SharedStudy, list[str], bool]:
    """Begin the study, or go on with it; return it, what to say of how it begins, and whether it is new.

    Raises `ZooError` for a storage that can't be reached, and for a study that was begun with other settings.
    """
    with quiet_optuna():
        # Before there is anything: a mistake in it is told each time, and leaves nothing behind.
        early = None if plan.folder.exists() else _warm_start(plan)
        storage = open_storage(plan.config["storage"], plan.folder, plan.config["heartbeat"])
        with storage.mistakes_told(), storage.lock(plan.full_name):
            study = existing_study(plan.full_name, storage)
            if study is not None and _is_replaceable(plan, study, storage):
                optuna.delete_study(study_name=plan.full_name, storage=storage.optuna)
                study = None
            is_new = study is None
            if study is None:
                first, remarks = early or _warm_start(plan)
                study = _begin(plan, storage, first)
            else:
                _check_settings(plan, study)
                remarks = [_goes_on(study, plan), *_unused_warm_start(study, plan)]
            study.set_user_attr(COMMANDS, study.user_attrs.get(COMMANDS, 0) + 1)
            shared = SharedStudy(study, storage, plan.config["n_trials"])
    return shared, remarks, is_new


def forget_untried(plan: Plan, shared: SharedStudy) -> None:
    """Remove a study of which no trial has begun, with its file and folders if there is nothing else there.

    Another that takes part in it keeps it.
    """
    storage = shared.storage
    with quiet_optuna(), shared.turn():
        if shared.study.user_attrs[COMMANDS] > 1 or counted(shared.trials()) or is_anyone_there(storage):
            return
        optuna.delete_study(study_name=plan.full_name, storage=storage.optuna)
        is_empty = not optuna.get_all_study_names(storage.optuna)
    storage.close()
    if is_empty and storage.file is not None and storage.file.parent == plan.folder.absolute():
        storage.file.unlink(missing_ok=True)
        shutil.rmtree(storage.workers, ignore_errors=True)
    with contextlib.suppress(OSError):  # up to the first that holds something
        for folder in (plan.folder, *plan.folder.parents[:3]):
            folder.rmdir()


def join_study(plan: Plan, storage: Storage) -> SharedStudy:
    """Return the study that `open_study` began, in another process.

    Raises `ZooError` if it is gone, or was begun anew with other settings by another command meanwhile.
    """
    with quiet_optuna(), storage.lock(plan.full_name):
        study = existing_study(plan.full_name, storage)
        if study is None:
            raise ZooError(f"the study {plan.full_name} is no longer in {storage.shown}")
        _check_settings(plan, study)
        study.pruner = plan.pruner.make(plan.interval, plan.steps_of_a_trial)
        return SharedStudy(study, storage, plan.config["n_trials"])


def has_claimed_any(worker: str, plan: Plan, shared: SharedStudy) -> bool:
    """Tell whether a process has claimed a trial, or one that trains a best one again."""
    if shared.has_claimed(worker):
        return True
    with quiet_optuna():
        top = existing_study(plan.full_name + TOP, shared.storage)
    return top is not None and SharedStudy(top, shared.storage, 0).has_claimed(worker)


def seed_of(study: Study) -> int:
    """Return the seed from which all seeds of a study's trials come."""
    return int(study.user_attrs[SEED])


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """Keep Optuna from printing what we say ourselves, and that parts of it are experimental."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.filterwarnings("ignore", module="optuna")
            yield
    finally:
        optuna.logging.set_verbosity(before)


def existing_study(name: str, storage: Storage) -> Study | None:
    """Return a study by its name, None if there is none. Raises `ZooError` for one that is damaged."""
    try:
        study = optuna.load_study(study_name=name, storage=storage.optuna)
    except KeyError:
        return None
    refuse_damaged(study)
    return study


def _begin(plan: Plan, storage: Storage, first: Sequence[FirstTrial]) -> Study:
    study = optuna.create_study(
        study_name=plan.full_name, storage=storage.optuna, directions=plan.objective.directions
    )
    seed = plan.base["seed"]
    study.set_user_attr(SEED, random_seed() if seed is None else seed)
    study.set_user_attr(SETTINGS, _as_json(plan.settings()))
    study.set_metric_names(plan.objective.names)
    for each in first:
        study.enqueue_trial(each.parameters, user_attrs={ORIGIN: each.origin})
    return study


def _is_replaceable(plan: Plan, study: Study, storage: Storage) -> bool:
    """Tell whether another study was begun, and nothing tried, perhaps for a mistake that is mended now.

    A process that takes part in it may be about to claim its first trial.
    """
    is_untried = not counted(study.get_trials(deepcopy=False)) and not is_anyone_there(storage)
    return is_untried and bool(_differences(plan, study))


def _differences(plan: Plan, study: Study) -> list[str]:
    was, is_seeded = study.user_attrs.get(SETTINGS), isinstance(study.user_attrs.get(SEED), int)
    if not isinstance(was, dict) or not is_seeded or seed_of(study) < 0:
        raise ZooError(f"the study {plan.full_name} was not made by zoo tune; another name: study=NAME")
    found = differences(_as_json(plan.settings()), was)
    seed = plan.base["seed"]
    if seed is not None and seed != seed_of(study):
        found.append(f"`seed` is {seed} (the study has {seed_of(study)})")
    return found


def _check_settings(plan: Plan, study: Study) -> None:
    found = _differences(plan, study)
    if found:
        shown = "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")
        raise ZooError(
            f"the study '{plan.name}' of {plan.algo} on {plan.env} was begun with other settings:"
            f" {one_line(shown, 800)}. Another study: study=NAME"
        )


def _as_json(settings: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=str))
    return plain


def _goes_on(study: Study, plan: Plan) -> str:
    done = sum(trial.state.is_finished() for trial in counted(study.get_trials(deepcopy=False)))
    return f"goes on: {done} of {plan.config['n_trials']} trials are done"


def _unused_warm_start(study: Study, plan: Plan) -> list[str]:
    """Return what to say where a study was begun without the warm start that is asked for."""
    place = plan.config["warm_start"]
    if not isinstance(place, str):
        return []
    origins = {str(trial.user_attrs.get(ORIGIN)) for trial in study.get_trials(deepcopy=False)}
    if any(origin.endswith(_of(place)) for origin in origins):
        return []
    return [f"warm_start={without_password(one_line(place))}: only a new study has one"]


def _of(place: str) -> str:
    return f" of {one_line(place)}"


def _warm_start(plan: Plan) -> tuple[list[FirstTrial], list[str]]:
    """Return the trials to begin with, and what to say of them."""
    setting = plan.config["warm_start"]
    if setting is True:
        return _from_config(plan)
    if isinstance(setting, str):
        return _from_study(plan, setting)
    return [], []


def _from_config(plan: Plan) -> tuple[list[FirstTrial], list[str]]:
    """Let the first trial have the tuned file's values, as far as the space has them."""
    tuned = plan.base["tuned"]
    if tuned in (None, "none"):
        return [], []
    found, outside = plan.space.parameters_of(plan.base)
    drawn = f"; those of {', '.join(outside)} lie outside the space and are drawn" if outside else ""
    return [FirstTrial(found, str(tuned))], [f"first trial with the values of {tuned}{drawn}"]


def _from_study(plan: Plan, place: str) -> tuple[list[FirstTrial], list[str]]:
    """Let the first trials have the values of another study's best, as far as the space has them."""
    with contextlib.closing(open_existing(place)) as other:
        best = _best_of(other, place)
    names = set(plan.space.parameter_names())
    first = []
    for trial in best:
        known = {name: each for name, each in trial.params.items() if name in names}
        if known and plan.space.can_draw(known):
            first.append(FirstTrial(known, f"trial {trial.number}{_of(place)}"))
    if not first:
        raise ZooError(f"warm_start={place}: none of its best trials has values within this space")
    which = "trial" if len(first) == 1 else f"{len(first)} trials"
    return first, [f"first {which} with the values of the best in {place}"]


def _best_of(storage: Storage, place: str) -> list[FrozenTrial]:
    import sqlalchemy

    try:
        names = [name for name in optuna.get_all_study_names(storage.optuna) if not name.endswith(TOP)]
        if len(names) != 1:
            raise ZooError(f"expected one study there, found {len(names)}")
        other = optuna.load_study(study_name=names[0], storage=storage.optuna)
        complete = complete_trials(other)
    except ZooError as error:
        raise ZooError(f"warm_start={place}: {error}") from error
    except (optuna.exceptions.OptunaError, sqlalchemy.exc.SQLAlchemyError, *DAMAGED) as error:
        raise ZooError(f"warm_start={place}: it can't be read: {unreadable(error)}") from error
    descending = other.directions[0] == optuna.study.StudyDirection.MAXIMIZE
    ranked = sorted(complete, key=lambda trial: trial.values[0], reverse=descending)
    if not ranked:
        raise ZooError(f"warm_start={place}: the study has no complete trial")
    return ranked[:WARM_TRIALS]
