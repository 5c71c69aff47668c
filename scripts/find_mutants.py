"""Break one line at a time and report what no test sees.

    python scripts/find_mutants.py --sample 40
    python scripts/find_mutants.py --sample all zoo/optim/optimizers.py
    python scripts/find_mutants.py --sample new

Each mutant is one file of a copy of the project in which one line of arithmetic is broken: an operator, a
comparison, a function's name or a number is another one (see `mutations.py`; `--every-way` breaks each line
in all the ways there are, also what decides instead of computing). The tests of all rooms with arithmetic run
once, which notes what lines each of them reaches. Then those that reach a mutant's line look at it, first
those that are called after its file, until one fails, or, with `--seconds`, until they took that long
together: such a mutant is undecided.

`mutants_seen.txt` beside this script names those that a test has seen. ``new`` are the others, and those of
functions that have changed since; `--keep` adds to the file what is seen.

A mutant that survives is a line that nothing holds in place: it gets a test, or, if no test could tell it
from the line (a bound that is never met), an entry in `EQUIVALENT` with the reason. What only other processes
run counts as reached by no test.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mutations import Mutant, mutants_of, one_a_line

ROOT = Path(__file__).resolve().parent.parent
SEEN = Path(__file__).with_name("mutants_seen.txt")
COPIED = ("zoo", "conf", "docs", "hyperparams", "trained_agents", "tests", "pyproject.toml")

ROOMS = ("memory", "optim", "policies", "envs", "training", "algorithms")
"""The rooms whose arithmetic results depend on."""

TESTS = (*ROOMS, "workers")
"""The folders of tests that look."""

LEFT_OUT = {
    "it says, draws, times or looks something up: no number of a result depends on it": (
        *("memory/config.py", "memory/limit.py", "optim/compile_clock.py", "policies/config.py"),
        *("algorithms/foreseen.py", "algorithms/registry.py", "algorithms/saving.py", "envs/config.py"),
        *("envs/camera.py", "envs/filming.py", "envs/env_error.py", "envs/ids.py", "envs/goal_check.py"),
        *("envs/first_steps.py", "envs/trial.py", "envs/whereabouts.py", "envs/sent_errors.py"),
        *("training/benchmark.py", "training/benchmark_job.py", "training/diagnosis.py", "training/job.py"),
        *("training/configured_algorithm.py", "training/configured_callbacks.py", "training/hang_watch.py"),
        *("training/logging_callback.py", "training/loggers.py", "training/machine.py", "training/played.py"),
        *("training/opened_agent.py", "training/own_classes.py", "training/progress.py"),
        *("training/recording.py", "training/signals.py", "training/tensorboard_logger.py"),
        *("training/trackers.py", "training/video_callback.py", "training/wandb_files.py"),
        *("training/wandb_logger.py", "training/git_state.py", "training/process_limits.py"),
        *("training/speed.py", "optim/allocator.py", "optim/compiled_cache.py"),
    ),
    "it speaks with other processes, whose lines no test in this process reaches": (
        *("envs/workers.py", "envs/worker_process.py", "envs/denormals.py"),
        *("training/workers.py", "training/worker_process.py"),
    ),
    "EnvPool is not installed where this runs": ("envs/envpool.py",),
    "it keeps and compares files; killed runs and damaged files are its tests": (
        *("training/checkpoint.py", "training/checkpoint_files.py", "training/experiment.py"),
        *("training/configured_pretraining.py", "training/last_checkpoint.py", "training/worker_folder.py"),
        *("training/reproducing.py", "training/run_folder.py", "training/starting_weights.py"),
    ),
    "what comes out is held against another system's, number by number": (
        *("training/exporting.py", "training/importing.py", "training/sb3_names.py"),
        "training/sb3_hyperparameters.py",
        *("training/sb3_normalization.py", "training/deterministic_policy.py"),
        *("policies/deterministic_policy.py",),
    ),
    "environments to try algorithms on: what is learned on them shows what they are": (
        *("envs/toys.py", "envs/action_toys.py"),
    ),
}
"""Files of these rooms that are not broken, by the reason."""


def files_to_break() -> tuple[str, ...]:
    """Return the files of all rooms but those that are left out."""
    left_out = {f"zoo/{name}" for names in LEFT_OUT.values() for name in names}
    found = {str(path.relative_to(ROOT)) for room in ROOMS for path in (ROOT / "zoo" / room).glob("*.py")}
    assert left_out <= found, f"there is no {sorted(left_out - found)}"
    return tuple(sorted(found - left_out))


HOW_OFTEN = "how often a worker looks up changes nothing of what it waits for"

EQUIVALENT = {
    ("zoo/memory/prioritized.py", "if is_full.all():", "is_full.all", "is_full.any"): (
        "a ring is full only where nothing is stored once; a row at the head of one that is not was never"
        " written there, and has no priority to be taken"
    ),
    (
        "zoo/memory/prioritized.py",
        "empty = empty[self.tree.numbers[empty] > 0]",
        "self.tree.numbers[empty] > 0",
        "self.tree.numbers[empty] >= 0",
    ): "what is 0 already is set to 0 once more",
    ("zoo/memory/sum_tree.py", "self._ends.append(np.zeros((n_nodes, FAN_OUT)))", "np.zeros", "np.ones"): (
        "ends are read only of groups whose sum is positive, and are written with it"
    ),
    (
        "zoo/memory/columns.py",
        'if array.dtype.kind == "f" and not math.isfinite(np.vdot(array, array)):',
        "array.dtype.kind == 'f' and (not math.isfinite(np.vdot(array, array)))",
        "array.dtype.kind == 'f' or not math.isfinite(np.vdot(array, array))",
    ): "floats that are all finite are searched too, and nothing is found",
    ("zoo/memory/hindsight.py", "chosen = np.argpartition(order, n - 1)[:, :n]", "1", "2"): (
        "NumPy's partition leaves the next number in its place as well, though it does not promise to"
    ),
    ("zoo/memory/replay.py", "self._n_added = self._n_added_before = 0", "0", "1"): (
        "only how much these counts grow is looked at"
    ),
    ("zoo/memory/replay.py", 'return array[rows] if array.dtype.kind == "f" else array[:0]', "0", "1"): (
        "nothing is looked for in arrays of whole numbers"
    ),
    (
        "zoo/policies/gaussian_heads.py",
        "unsquashed = mean.unsqueeze(-1) + log_std.exp().unsqueeze(-1) * points",
        "mean.unsqueeze(-1) + log_std.exp().unsqueeze(-1) * points",
        "mean.unsqueeze(-1) - log_std.exp().unsqueeze(-1) * points",
    ): "the quadrature's points lie symmetrically about 0, and so do their weights",
    (
        "zoo/policies/exploration.py",
        "indifferent = np.zeros((n, head.parameter_size), np.float32)",
        "np.zeros",
        "np.ones",
    ): "logits that are all equal give equal probabilities, whatever they are",
    ("zoo/memory/episodes.py", "UNDER_WAY = -1", "1", "2"): "any negative number stands for it as well",
    (
        "zoo/policies/exploration.py",
        "is_random = rng.random(n_rows(seen)) < self.rate(progress)",
        "rng.random(n_rows(seen)) < self.rate(progress)",
        "rng.random(n_rows(seen)) <= self.rate(progress)",
    ): "both numbers are equal once in 2**53 draws",
    (
        "zoo/memory/segments.py",
        "name = self._names[segment] = self._names[segment] or secrets.token_hex(16)",
        "16",
        "17",
    ): "a longer name is as good",
    (
        "zoo/policies/state_dependent_heads.py",
        "below = values.clamp(max=0)  # also where it is not chosen: an infinite slope would become NaN",
        "0",
        "1",
    ): "what is above 0 is not chosen, only kept from growing",
    (
        "zoo/policies/state_dependent_heads.py",
        "return torch.where(values > 0, values.clamp(min=0).log1p() + 1.0, below.exp())",
        "values > 0",
        "values >= 0",
    ): "at 0 both are 1, and so are their slopes",
    (
        "zoo/optim/program.py",
        "SMALLEST_CAPACITY = 16",
        "16",
        "17",
    ): "how many a loop holds changes none",
    (
        "zoo/optim/spectral.py",
        "self.directions[name] = u / u.norm(), torch.zeros(weight[0].numel())",
        "torch.zeros",
        "torch.ones",
    ): ("the power method makes these anew before anything reads them"),
    (
        "zoo/optim/workers.py",
        "ORDER_BYTES = 8192",
        "8192",
        "8193",
    ): "a byte more than any order needs changes none",
    (
        "zoo/optim/workers.py",
        "PATIENCE = datetime.timedelta(days=30)",
        "30",
        "31",
    ): "no worker is waited for so long",
    ("zoo/optim/workers.py", "SPIN_SECONDS, LONGEST_NAP = 2e-4, 2e-3", "0.0002", "0.0004"): HOW_OFTEN,
    ("zoo/optim/workers.py", "self.totals(0)  # so that none goes before all have heard it", "0", "1"): (
        "nobody reads what is added up"
    ),
    ("zoo/optim/workers.py", "self.totals(0)", "0", "1"): "nobody reads what is added up",
    (
        "zoo/optim/workers.py",
        "message = torch.zeros(ORDER_BYTES, dtype=torch.uint8)",
        "torch.zeros",
        "torch.ones",
    ): "what is heard overwrites all of it",
    (
        "zoo/optim/workers.py",
        "if nap or time.perf_counter() - started > SPIN_SECONDS:",
        "time.perf_counter() - started",
        "time.perf_counter() + started",
    ): HOW_OFTEN,
    ("zoo/optim/workers.py", "SPIN_SECONDS, LONGEST_NAP = 2e-4, 2e-3", "0.002", "0.004"): HOW_OFTEN,
    (
        "zoo/optim/workers.py",
        "if nap or time.perf_counter() - started > SPIN_SECONDS:",
        "time.perf_counter() - started > SPIN_SECONDS",
        "time.perf_counter() - started >= SPIN_SECONDS",
    ): HOW_OFTEN,
    (
        "zoo/policies/numpy_recurrence.py",
        "white_gates[t], scales[t, :, :1] = _whitened(here)",
        "1",
        "2",
    ): "the second of the two numbers is written later in the step",
    ("zoo/optim/tracing.py", "return [", "0", "1"): "the second tensor is on the same device as the first",
    ("zoo/optim/tracing.py", "INDUCTOR_OPTIONS: dict[str, Any] = {", "1", "2"): (
        "how many processes compile changes none of what they compile"
    ),
    ("zoo/algorithms/resuming.py", "self.predict_rng = np.random.default_rng((seed, 1))", "1", "2"): (
        "any number gives draws of its own"
    ),
    (
        "zoo/optim/program.py",
        "return compile_loop(step, self.state, shared, row(rows, 0), capacity)",
        "0",
        "1",
    ): "the row is an example, and a loop has several",
    ("zoo/memory/replay.py", "if self.n_step > 1:", "self.n_step > 1", "self.n_step >= 1"): (
        "the last step of a window of one is its first"
    ),
    (
        "zoo/memory/final_observations.py",
        "self.columns: dict[str, Column] = {name: allocate(spec, (0,)) for name, spec in self.specs.items()}",
        "0",
        "1",
    ): "where there is room for one more from the beginning, some is made later",
    ("zoo/policies/gaussian_heads.py", "QUADRATURE = np.polynomial.hermite_e.hermegauss(48)", "48", "49"): (
        "one point more changes an integral by less than single precision shows"
    ),
    (
        "zoo/policies/numpy_forward.py",
        "return np.where(values > 0, np.log1p(np.abs(values)) + 1, np.exp(-np.abs(values)))",
        "values > 0",
        "values >= 0",
    ): "at 0 both are 1",
    ("zoo/training/evaluation.py", "self.n_steps += 1", "1", "2"): (
        "it is looked twice as often whether an episode is long; what is told of it is the same"
    ),
    ("zoo/training/evaluation.py", "LONG_EPISODE = 100_000", "100000", "100001"): (
        "how long is long is a matter of taste; no test plays that many steps"
    ),
    (
        "zoo/envs/action_log.py",
        "while capacity < self.n_steps:",
        "capacity < self.n_steps",
        "capacity <= self.n_steps",
    ): "a ring twice as large holds the same actions",
    ("zoo/envs/goals.py", "TRIED_GOALS = 16", "16", "17"): "one goal more is as good a trial",
    (
        "zoo/algorithms/quantile_loss.py",
        "is_above = (target < each).detach().to(quantiles.dtype)",
        "target < each",
        "target <= each",
    ): "where both are equal their loss is 0, and so is its slope",
    ("zoo/memory/prioritized.py", "MOST_NEW = 1024", "1024", "1025"): (
        "they all get the same priority, whenever that is"
    ),
    ("zoo/memory/final_observations.py", "if n_rows > n_there:", "n_rows > n_there", "n_rows >= n_there"): (
        "room is made one row earlier, and as much of it"
    ),
    ("zoo/memory/sequence_memory.py", "NOWHERE = -1", "1", "2"): "any negative number stands for it as well",
    (
        "zoo/memory/final_observations.py",
        "NOWHERE = -1",
        "1",
        "2",
    ): "any negative number stands for it as well",
    ("zoo/memory/rollout.py", "if room > len(rows):", "room > len(rows)", "room >= len(rows)"): (
        "no row is drawn where none is missing"
    ),
    (
        "zoo/memory/rollout.py",
        "epochs = np.concatenate([epochs, rng.choice(rows, (n_epochs, room - len(rows)))], axis=1)",
        "room - len(rows)",
        "room + len(rows)",
    ): "what is drawn beyond the room is cut off",
    ("zoo/memory/episodes.py", "self.since = np.zeros((length, n_envs), np.int32)", "np.zeros", "np.ones"): (
        "it is read only where a transition was written, and is written with it"
    ),
    (
        "zoo/memory/replay.py",
        "found = final if found is None or final.steps_ago > found.steps_ago else found",
        "final.steps_ago > found.steps_ago",
        "final.steps_ago >= found.steps_ago",
    ): "of two numbers of one step either may be told",
    ("zoo/policies/numpy_recurrence.py", "restarts = (keep != 1).any((1, 2))", "1", "2"): (
        "a state that is kept may be multiplied by 1 as well"
    ),
    ("zoo/policies/recurrence.py", "_taken_apart.append(True)", "True", "False"): (
        "only how many blocks are open is looked at"
    ),
    ("zoo/policies/recurrence.py", "layer, step = KINDS[kind], 1e-20", "1e-20", "2e-20"): (
        "the derivative is as exact with any step as small as that"
    ),
    (
        "zoo/policies/multi_heads.py",
        "return (parameters > 0).view(np.int8)",
        "parameters > 0",
        "parameters >= 0",
    ): ("at 0 both values of a bit are as likely"),
    (
        "zoo/policies/exploration.py",
        "is_random = rng.random((n, 1)) < self.random_share",
        "rng.random((n, 1)) < self.random_share",
        "rng.random((n, 1)) <= self.random_share",
    ): "both numbers are equal once in 2**53 draws",
    ("zoo/policies/state_dependent_exploration.py", "self._n_steps = 0", "0", "1"): (
        "it is 0 again with the first draw"
    ),
    (
        "zoo/policies/parameter_noise.py",
        "vector[part] += torch.from_numpy(np.float32(self.std) * noise).to(vector.device)",
        "vector[part] += torch.from_numpy(np.float32(self.std) * noise).to(vector.device)",
        "vector[part] -= torch.from_numpy(np.float32(self.std) * noise).to(vector.device)",
    ): "normal noise is as likely with the other sign",
    (
        "zoo/envs/wrappers.py",
        "self._actions = np.zeros((horizon, n_action), dtype=np.float32)",
        "np.zeros",
        "np.ones",
    ): "a reset makes them zeros, and comes before anything is shown",
    (
        "zoo/envs/wrappers.py",
        "self._observations = np.zeros((horizon, *space.shape), dtype=np.float32)",
        "np.zeros",
        "np.ones",
    ): "a reset makes them zeros, and comes before anything is shown",
    ("zoo/envs/goals.py", "space.seed(0)", "0", "1"): "any goals are as good a trial",
    (
        "zoo/envs/seeds.py",
        "return int(np.random.SeedSequence(seed, spawn_key=(1, rank)).generate_state(1)[0])",
        "1",
        "2",
    ): "any number but another stream's gives a stream of its own; its first word is the same in all lengths",
    (
        "zoo/envs/seeds.py",
        "return [int(word) for word in np.random.SeedSequence(seed, spawn_key=(0,)).generate_state(n)]",
        "0",
        "1",
    ): "any number gives streams of their own, as the workers' keys have two",
    (
        "zoo/envs/seeds.py",
        "return int(np.random.SeedSequence().generate_state(1)[0]) >> 1",
        "1",
        "2",
    ): "the first word is the same in all lengths, and a smaller seed by chance is as good",
    ("zoo/envs/native.py", "env.action_space.seed(derived_seeds(seed, 1)[0])", "1", "2"): (
        "the first of two derived seeds is the one that is derived alone"
    ),
    (
        "zoo/envs/same_step.py",
        "self.action_space.seed(None if seed is None else derived_seeds(seed, 1)[0])",
        "1",
        "2",
    ): "the first of two derived seeds is the one that is derived alone",
    (
        "zoo/envs/same_step.py",
        "records = np.zeros_like(self._arrays.actions)",
        "np.zeros_like",
        "np.ones_like",
    ): ("every field is written"),
    ("zoo/envs/env_states.py", 'actions = np.zeros(len(columns["0"]), dtype)', "np.zeros", "np.ones"): (
        "every field is written"
    ),
    ("zoo/envs/env_group.py", "i = 0", "0", "1"): "the loop sets it before any environment is stepped",
    ("zoo/envs/stepper.py", "self._n_steps = 0", "0", "1"): "only how much it grows is looked at",
    ("zoo/envs/vec_env.py", "ENV_BYTES = 4096", "4096", "4097"): "it is an estimate from below",
    ("zoo/envs/atari.py", "self._lives = 0", "0", "1"): "a reset counts them, and comes before any step",
    ("zoo/envs/wrappers.py", "self._return = 0.0", "0.0", "1.0"): (
        "a reset makes it zero, and comes before any step"
    ),
    (
        "zoo/envs/wrappers.py",
        "self._length = 0",
        "0",
        "1",
    ): "a reset makes it zero, and comes before any step",
    (
        "zoo/envs/wrappers.py",
        "self._frames = np.zeros(low.shape, dtype=space.dtype)",
        "np.zeros",
        "np.ones",
    ): "a reset makes them zeros, and comes before anything is shown",
    (
        "zoo/training/statistics.py",
        "rows = max(1, _ELEMENTS // sum(len(scores) for scores in [*first, *second]))",
        "max",
        "min",
    ): "how many deals are made at once changes none",
    (
        "zoo/training/statistics.py",
        "rows = max(1, _ELEMENTS // sum(len(scores) for scores in [*first, *second]))",
        "1",
        "2",
    ): "how many deals are made at once changes none",
    (
        "zoo/training/statistics.py",
        "rows = max(1, _ELEMENTS // sum(len(scores) for scores in [*first, *second]))",
        "_ELEMENTS // sum((len(scores) for scores in [*first, *second]))",
        "_ELEMENTS * sum((len(scores) for scores in [*first, *second]))",
    ): "how many deals are made at once changes none",
    (
        "zoo/training/statistics.py",
        "size = width * max(1, sum(len(scores) for strata in methods for scores in strata))",
        "max",
        "min",
    ): "how many resamples are made at once changes none",
    (
        "zoo/training/statistics.py",
        "as_large += int((differences >= there * (1 - 1e-9)).sum())",
        "1e-09",
        "2e-09",
    ): "either is more than rounding and less than a difference",
    (
        "zoo/algorithms/demonstrations.py",
        "after = torch.zeros_like(states)",
        "torch.zeros_like",
        "torch.ones_like",
    ): ("each row is written before it is read"),
    (
        "zoo/algorithms/demonstrations.py",
        "return np.zeros(0, np.int64)",
        "np.zeros",
        "np.ones",
    ): "there is nothing in it",
    (
        "zoo/algorithms/episodes_apart.py",
        "results, records = np.zeros((len(episodes), 2 + n_seen)), []",
        "np.zeros",
        "np.ones",
    ): "each row is written when its episode ends",
    (
        "zoo/algorithms/given_masks.py",
        "return np.stack(masks) if masks else np.zeros((0, 0), np.bool_)",
        "np.zeros",
        "np.ones",
    ): "there is nothing in it",
    ("zoo/memory/expert_data.py", "return np.zeros(0, np.int64)", "np.zeros", "np.ones"): (
        "there is nothing in it"
    ),
    (
        "zoo/memory/stable_baselines_data.py",
        "return np.zeros((0, 1, 1, 1), np.uint8)",
        "np.zeros",
        "np.ones",
    ): "there is nothing in it",
    ("zoo/algorithms/adversary.py", "self.order = np.zeros(0, np.int64)", "np.zeros", "np.ones"): (
        "there is nothing in it"
    ),
    ("zoo/algorithms/base.py", "self._callbacks = CallbackSchedule([], 0)", "0", "1"): (
        "without callbacks nothing is due at any step"
    ),
    ("zoo/algorithms/episodes_apart.py", "LONGEST_EPISODE = 1_000_000", "1000000", "1000001"): (
        "how long is too long is a matter of taste; no test plays that many steps"
    ),
    (
        "zoo/algorithms/finite.py",
        "if tensor.is_floating_point() and not torch.isfinite(tensor.sum()) and not tensor.isfinite().all():",
        "tensor.sum",
        "tensor.mean",
    ): "a mean is finite where all numbers are, as their sum is; where it is not, each number is looked at",
    ("zoo/algorithms/interaction.py", "self._n_steps = 0", "0", "1"): (
        "only how much later one step is than another is looked at"
    ),
    (
        "zoo/algorithms/on_policy.py",
        "return {name: torch.cat([part[name] for part in judged]) for name in judged[0]}",
        "0",
        "1",
    ): "there are two parts at least, which have the same names",
    (
        "zoo/algorithms/on_policy.py",
        "if workers.count() > 1:",
        "workers.count() > 1",
        "workers.count() >= 1",
    ): ("of the steps of one worker both ways give the same mean and deviation but for rounding"),
    (
        "zoo/algorithms/retrace.py",
        "weights = torch.cat([weights[..., :-1], torch.zeros_like(weights[..., :1])], dim=-1)",
        "torch.zeros_like",
        "torch.ones_like",
    ): "what comes after the last step is 0, whatever finite number it is multiplied by",
    ("zoo/algorithms/retrace.py", "while reach < length:", "reach < length", "reach <= length"): (
        "nothing stands that many steps later: what a further round adds is 0"
    ),
    (
        "zoo/algorithms/sequences.py",
        'problem = "is longer than" if asked > n_steps else "does not divide"',
        "asked > n_steps",
        "asked >= n_steps",
    ): "a length divides itself: that one is no problem",
    ("zoo/algorithms/trpo.py", "first = transform(lambda column: column[:1], rollout)", "1", "2"): (
        "on which parameters actions depend is the same in any rows"
    ),
    (
        "zoo/algorithms/trpo.py",
        "slopes = torch.autograd.grad(outputs.sum(), list(parameters.leaves.values()), allow_unused=True)",
        "outputs.sum",
        "outputs.mean",
    ): "only whether there is a slope is looked at",
    (
        "zoo/algorithms/cloning.py",
        'loss = self.head.imitation_loss(parameters, batch["actions"]).mean()',
        "self.head.imitation_loss(parameters, batch['actions']).mean",
        "self.head.imitation_loss(parameters, batch['actions']).sum",
    ): "only where the slope is not 0 is looked at",
    ("zoo/algorithms/cloning.py", "VALIDATED_AT_ONCE = 4096", "4096", "4097"): (
        "how many rows are judged at once changes no mean of theirs"
    ),
    ("zoo/algorithms/demonstrations.py", "OWN_GENERATOR = 2", "2", "3"): "any number gives draws of its own",
    (
        "zoo/algorithms/adversary.py",
        "return rng.choice(n, wanted, replace=False) if wanted <= n"
        " else np.resize(rng.permutation(n), wanted)",
        "wanted <= n",
        "wanted < n",
    ): "where all are wanted both are a random order of them",
    ("zoo/algorithms/expert_episodes.py", "checksum = 0", "0", "1"): "any number is as good to start from",
    ("zoo/memory/prioritized.py", "self._drawn = np.empty(0, np.int64)", "0", "1"): (
        "nothing is learned before something was drawn, which takes its place"
    ),
    (
        "zoo/memory/prioritized.py",
        "if len(self._new) == MOST_NEW:",
        "len(self._new) == MOST_NEW",
        "len(self._new) != MOST_NEW",
    ): "they all get the same priority, whenever that is",
    (
        "zoo/memory/replay.py",
        "self._heads_are_equal = bool((self._heads == self._heads[0]).all())",
        "self._heads == self._heads[0]",
        "self._heads != self._heads[0]",
    ): "the first is never another than itself; what is written row by row stands where it would have",
    (
        "zoo/memory/sampling.py",
        "if (sizes == sizes[0]).all():",
        "sizes == sizes[0]",
        "sizes != sizes[0]",
    ): "rings of one size are numbered in another order, in which all are as likely",
    ("zoo/memory/sum_tree.py", "WIDEST_TOP = 2048", "2048", "2049"): (
        "at which size a level is added changes how fast a number is found, and not which"
    ),
    ("zoo/algorithms/agent.py", "self.n_envs = 1", "1", "2"): (
        "an algorithm, which every agent is, sets it anew before it is read"
    ),
    (
        "zoo/algorithms/cloning.py",
        "sums += torch.stack([(weights * losses).sum(), weights.sum()]).double().cpu()",
        "sums += torch.stack([(weights * losses).sum(), weights.sum()]).double().cpu()",
        "sums -= torch.stack([(weights * losses).sum(), weights.sum()]).double().cpu()",
    ): "both sums have the other sign, and their quotient is the same",
    (
        "zoo/algorithms/episodes_apart.py",
        "steps, rewards = np.zeros(envs.num_envs, np.int64), np.zeros(envs.num_envs)",
        "np.zeros",
        "np.ones",
    ): "it is 0 wherever an episode begins, and elsewhere far from what is too long",
    (
        "zoo/algorithms/gail.py",
        "self.n_rollouts += 1",
        "self.n_rollouts += 1",
        "self.n_rollouts -= 1",
    ): "only whether it is a multiple is looked at, which is the same if it is counted downwards",
    (
        "zoo/algorithms/gail.py",
        "sums, lengths = np.zeros(rewards.shape), np.zeros(rewards.shape, np.int64)",
        "np.zeros",
        "np.ones",
    ): "each row is written before it is read",
    (
        "zoo/algorithms/ppo2.py",
        "state[STOPPED] = torch.zeros((), dtype=torch.bool, device=self.device)",
        "torch.zeros",
        "torch.ones",
    ): "each step writes it before it is read",
    ("zoo/training/evaluation.py", "self.n_steps += 1", "self.n_steps += 1", "self.n_steps -= 1"): (
        "only whether it is a multiple is looked at, which is the same if it is counted downwards"
    ),
    (
        "zoo/memory/expert_summary.py",
        'return one_line(", ".join(f"{key} {one_line(value, 80)}" for key, value in source.items()), 1000)'
        ' or "?"',
        "1000",
        "1001",
    ): "how much of a long line is shown is taste",
    (
        "zoo/training/expert_recording.py",
        "value = one_line(stacked.tolist()[wrong], 80)",
        "80",
        "81",
    ): "how much of a long value is shown is taste",
    ("zoo/training/signed_words.py", "PROOF_BYTES = 32", "32", "33"): "a longer proof is as good",
    ("zoo/training/statistics.py", "N_RESAMPLES = 10_000", "10000", "10001"): "one more resample is as good",
    ("zoo/training/statistics.py", "_ELEMENTS = 1_000_000", "1000000", "1000001"): (
        "how much is drawn at a time is chosen for the memory that it takes"
    ),
    ("zoo/optim/spectral.py", "AT_FIRST, EACH_TIME = 50, 2", "50", "51"): (
        "one step more only brings the directions a little nearer to where they go"
    ),
    (
        "zoo/optim/spectral.py",
        "self.directions[name] = u / u.norm(), torch.zeros(weight[0].numel())",
        "u / u.norm()",
        "u * u.norm()",
    ): ("the first step of the power method takes its direction alone"),
    ("zoo/optim/kfac.py", "LEAST_EIGENVALUE = 1e-12", "1e-12", "2e-12"): (
        "any number far below all curvature is as good"
    ),
    (
        "zoo/optim/natural.py",
        "weights = torch.zeros_like(outputs, requires_grad=True)",
        "torch.zeros_like",
        "torch.ones_like",
    ): ("what is made of them is linear in them, and only its derivative is used"),
    (
        "zoo/optim/program.py",
        "if n_rows > 1 and known < min(n_rows, SMALLEST_CAPACITY):",
        "n_rows > 1",
        "n_rows >= 1",
    ): ("no graph holds less than the one step of such a call"),
    ("zoo/optim/runtime.py", "COMPILE_SECONDS = 30.0", "30.0", "60.0"): (
        "a rough number, measured: which form runs changes how fast, and hardly a number"
    ),
    ("zoo/optim/runtime.py", "SECONDS_SAVED_PER_OPERATION = 5e-6", "5e-06", "1e-05"): (
        "a rough number, measured, as the seconds of a compilation are"
    ),
    (
        "zoo/optim/runtime.py",
        'MULTIPLICATIONS_FOR_THREADS = {"eager": 8e6, "compiled": 3e6}',
        "8000000.0",
        "16000000.0",
    ): ("a rough number, measured: on how many threads an update runs changes how fast"),
    ("zoo/optim/runtime.py", "self._multiplications = 0.0", "0.0", "1.0"): (
        "one multiplication is as far as none from what a second thread is for"
    ),
    (
        "zoo/optim/runtime.py",
        "self.compile = saved > COMPILE_SECONDS",
        "saved > COMPILE_SECONDS",
        "saved >= COMPILE_SECONDS",
    ): ("where compiling takes as long as it saves, both forms are as good"),
    (
        "zoo/optim/runtime.py",
        "is_small = self._multiplications < MULTIPLICATIONS_FOR_THREADS[form]",
        "self._multiplications < MULTIPLICATIONS_FOR_THREADS[form]",
        "self._multiplications <= MULTIPLICATIONS_FOR_THREADS[form]",
    ): ("at that size a second thread gives as much as it costs"),
    (
        "zoo/optim/runtime.py",
        "flushed_before = bool(torch.full((), 1e-40, dtype=torch.float32) * 0.5 == 0)",
        "torch.full((), 1e-40, dtype=torch.float32) * 0.5",
        "torch.full((), 1e-40, dtype=torch.float32) / 0.5",
    ): ("twice the number is denormal as well"),
    ("zoo/optim/runtime.py", "_OMP_PAUSE_SOFT = 1", "1", "2"): ("a hard pause gives up the threads too"),
    (
        "zoo/optim/runtime.py",
        "factors = torch.full((256, 256), 1 + 2**-12, device=device)",
        "1 + 2 ** (-12)",
        "1 - 2 ** (-12)",
    ): ("no rounded factor can be that one either"),
    ("zoo/optim/runtime.py", "with computing_with(1, precision):", "1", "2"): (
        "factors are rounded on any number of threads, or on none"
    ),
    (
        "zoo/policies/side_by_side.py",
        "vectors = torch.zeros((n_rows, parameters.size))",
        "torch.zeros",
        "torch.ones",
    ): ("a row is given its weights before any action of it counts"),
    ("zoo/policies/state_dependent_exploration.py", "return self.act(seen, rng, 0.0)", "0.0", "1.0"): (
        "these actions don't depend on how far training is"
    ),
    (
        "zoo/optim/tracing.py",
        "buffers = [torch.zeros((capacity, *shape), dtype=dtype) for shape, dtype in outputs]",
        "torch.zeros",
        "torch.ones",
    ): ("only the rows that were written are returned"),
    (
        "zoo/algorithms/pretraining.py",
        "n_rows = config.n_epochs * len(self._demonstrations.train)",
        "config.n_epochs * len(self._demonstrations.train)",
        "config.n_epochs / len(self._demonstrations.train)",
    ): "what is never compiled is only asked whether it was told of any steps",
}
"""(file, first line of the statement, what stood there, what was put there): why no test can tell."""

Told = tuple[Mutant, str, str]
"""A mutant, its fate, and the test that saw it."""

LOST = ("SURVIVED", "UNDECIDED", "UNREACHED", "NOT SHOWN")
"""Fates of a mutant that nothing has seen."""


def main() -> int:
    """Show the mutants that were asked for; return 1 if any survived."""
    arguments = parse_arguments()
    seen = Seen(SEEN)
    chosen, n = choose(arguments, seen)
    print(f"{len(chosen)} of {n} mutants, seed {arguments.seed}", flush=True)
    if not chosen:
        return 0
    with tempfile.TemporaryDirectory() as folder:
        first = copy_of_project(ROOT, Path(folder) / "0")
        projects = [first]
        for i in range(1, min(arguments.workers, len(chosen))):
            projects.append(copy_of_project(first, Path(folder) / str(i)))
        notes = read_notes(projects, arguments)
        lost = show(chosen, projects, arguments, notes, seen)
    return 1 if lost else 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument(
        "files", nargs="*", default=files_to_break(), help="files to break; else all of the rooms"
    )
    parser.add_argument("--sample", default="40", help="how many mutants, drawn at random, or all, or new")
    parser.add_argument("--every-way", action="store_true", help="break each line in all the ways there are")
    parser.add_argument("--keep", action="store_true", help="add what is seen to the file of those seen")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rooms", nargs="+", default=TESTS, help="folders of tests that look; else all")
    parser.add_argument("--notes", type=Path, help="file that keeps which tests reach which lines")
    parser.add_argument(
        "--seconds", type=float, help="how long the tests of one mutant may take; else all run"
    )
    return parser.parse_args()


class Seen:
    """The mutants that a test has seen, in a file, a line each, while their functions stay as they are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._names = set(path.read_text(encoding="ascii").split()) if path.exists() else set()

    def __contains__(self, mutant: Mutant) -> bool:
        return name_of(mutant) in self._names

    def add(self, mutants: Sequence[Mutant]) -> None:
        """Write them down as well."""
        self._names.update(map(name_of, mutants))
        new = self.path.with_suffix(".new")
        new.write_text("".join(f"{name}\n" for name in sorted(self._names)), encoding="ascii")
        new.replace(self.path)

    def keep_only(self, mutants: Sequence[Mutant]) -> None:
        """Forget all others, which are no longer there."""
        self._names &= set(map(name_of, mutants))
        self.add([])


def name_of(mutant: Mutant) -> str:
    """Return what tells a mutant from all others: a digest of its file's name and the function it makes."""
    return hashlib.sha256(f"{mutant.file}\n{mutant.surroundings()}".encode()).hexdigest()[:16]


def choose(arguments: argparse.Namespace, seen: Seen) -> tuple[list[Mutant], int]:
    """Return the mutants to show, and how many there are."""
    every = [mutant for file in arguments.files for mutant in mutants_of(ROOT, file)]
    for key in EQUIVALENT.keys() - {mutant.key for mutant in every}:
        if key[0] in arguments.files:
            print(f"no longer there, but among those that no test can tell: {key}", flush=True)
    mutants = [each for each in every if each.key not in EQUIVALENT]
    if not arguments.every_way:
        mutants = one_a_line(mutants)
    if arguments.sample == "new":
        chosen = [mutant for mutant in mutants if mutant not in seen]
    else:
        n = len(mutants) if arguments.sample == "all" else min(int(arguments.sample), len(mutants))
        chosen = random.Random(arguments.seed).sample(mutants, n)
    if arguments.keep and set(arguments.files) == set(files_to_break()):
        seen.keep_only(every)
    return chosen, len(mutants)


def copy_of_project(project: Path, folder: Path) -> Path:
    """Copy what tests need."""
    folder.mkdir()
    for name in COPIED:
        source = project / name
        if source.is_dir():
            shutil.copytree(source, folder / name)
        else:
            shutil.copy2(source, folder / name)
    return folder


def read_notes(projects: Sequence[Path], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return which tests reach which lines, as kept in a file, else by running them; see `mutant_tests`."""
    path: Path = arguments.notes or projects[0].with_name("notes.json")
    if not path.exists():
        print("running the tests without any mutant …", flush=True)
        path.write_text(json.dumps(together(run_noting(projects, arguments.rooms))), encoding="utf-8")
    notes: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for test in notes["failed"]:
        print(f"left out: {test} fails without any mutant", flush=True)
    print(f"{len(notes['tests'])} tests", flush=True)
    return notes


def run_noting(projects: Sequence[Path], rooms: Sequence[str]) -> list[dict[str, Any]]:
    """Run a part of the tests in each project, and return the notes of each."""
    files = [
        str(path.relative_to(projects[0]))
        for room in rooms
        for path in sorted((projects[0] / "tests" / room).glob("test_*.py"))
    ]
    running = []
    for i, project in enumerate(projects):
        path = project.with_name(f"{project.name}-notes.json")
        command = [*pytest_of(project, files[i :: len(projects)]), "--note-reached", path]
        process = subprocess.Popen(
            command, cwd=project, env=environment_of(project), stdout=subprocess.DEVNULL
        )
        running.append((process, path))
    for process, _ in running:
        process.wait()
    return [json.loads(path.read_text(encoding="utf-8")) for _, path in running]


def together(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return as one the notes of several processes, each of which has numbered its own tests."""
    tests: list[Any] = []
    reached: dict[str, dict[str, list[int]]] = {}
    for part in parts:
        for file, lines in part["reached"].items():
            for line, numbers in lines.items():
                reached.setdefault(file, {}).setdefault(line, []).extend(n + len(tests) for n in numbers)
        tests += part["tests"]
    return {"tests": tests, "failed": [each for part in parts for each in part["failed"]], "reached": reached}


def show(
    chosen: Sequence[Mutant],
    projects: Sequence[Path],
    arguments: argparse.Namespace,
    notes: dict[str, Any],
    seen: Seen,
) -> list[str]:
    """Let a pytest in each project look at a part of the mutants; print their fates, return what survived."""
    told: queue.Queue[Told] = queue.Queue()
    parts = [chosen[i :: len(projects)] for i in range(len(projects))]
    for project, part in zip(projects, parts, strict=True):
        to_show = project, part, arguments, notes, told
        threading.Thread(target=show_in, args=to_show, daemon=True).start()
    fates: Counter[str] = Counter()
    lost = []
    for _ in chosen:
        mutant, fate, test = told.get()
        print(f"{fate:9} {mutant}" + (f"  ({test})" if test else ""), flush=True)
        if arguments.keep and fate not in LOST:
            seen.add([mutant])
        fates[fate] += 1
        lost += [f"{mutant} in `{mutant.statement}`"] if fate in LOST else []
    print(", ".join(f"{count} {fate}" for fate, count in fates.items()), *lost, sep="\n  ")
    return lost


def show_in(
    project: Path,
    mutants: Sequence[Mutant],
    arguments: argparse.Namespace,
    notes: dict[str, Any],
    told: queue.Queue[Told],
) -> None:
    """Let one pytest look at these mutants, and tell what becomes of each."""
    task = project.with_name(f"{project.name}-task.json")
    shown = [mutant.as_dict() for mutant in mutants]
    seen_by = str(project.with_name(f"{project.name}-seen_by"))
    content = {"mutants": shown, "notes": notes, "seen_by": seen_by, "seconds": arguments.seconds}
    task.write_text(json.dumps(content), encoding="utf-8")
    reading, writing = os.pipe()
    command = [
        *pytest_of(project, [f"tests/{room}" for room in arguments.rooms]),
        "--show-mutants",
        task,
        "--fates",
        str(writing),
    ]
    environment = {**environment_of(project), "PYTHONDONTWRITEBYTECODE": "1"}
    with open(reading, encoding="utf-8") as fates:
        process = subprocess.Popen(
            command, cwd=project, env=environment, stdout=subprocess.DEVNULL, pass_fds=[writing]
        )
        os.close(writing)
        for mutant in mutants:
            line = fates.readline()
            fate, test = json.loads(line) if line else ("NOT SHOWN", f"pytest ended with {process.wait()}")
            told.put((mutant, fate, test))
        process.wait()


def pytest_of(project: Path, tests: Sequence[str]) -> list[Any]:
    """Return the command that collects tests in a project."""
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--basetemp", f"{project}-tmp")
    return [sys.executable, "-m", "mutant_tests", *options, *tests]


def environment_of(project: Path) -> dict[str, str]:
    """Return the environment in which the project's own package is imported."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(project), str(Path(__file__).parent)])}


if __name__ == "__main__":
    raise SystemExit(main())
