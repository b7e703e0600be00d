"""What a search draws next: Optuna's sampler under Ray Tune, with trials numbered and past ones known to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState
from ray.tune.search.optuna import OptunaSearch

from slm_lab.experiment.search_record import Drawn
from slm_lab.lib.rng import seed_of
from slm_lab.spec.space import Dimension, Space

METRIC, TIME = "total_reward_ma", "frame"
TRIAL = "trial"  # the key of a trial's number beside what was drawn for it


class StatelessSampler(BaseSampler):
    """TPE whose draws follow from the seed and the trials so far alone: a search goes on where it was killed."""

    def __init__(self, seed: int, startup: int) -> None:
        self.seed, self.startup = seed, startup
        self._current: BaseSampler | None = None

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        # other trials run at the same time: what they will come to is taken to be bad, so that draws differ from theirs
        seed = seed_of(self.seed, trial.number)
        self._current = TPESampler(seed=seed, n_startup_trials=self.startup, constant_liar=True)

    def _now(self) -> BaseSampler:
        assert self._current is not None, "before_trial comes first"
        return self._current

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._now().infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._now().sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._now().sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Nothing to learn beside what the study keeps."""


class NumberedSearch(OptunaSearch):
    """Optuna for Ray Tune: the unfinished trials of `past` first, then new draws; `tell` hears of each as it starts."""

    def __init__(
        self, space: Space, sampler: BaseSampler, past: Sequence[Drawn], tell: Callable[[int, dict[str, float]], None]
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        past = sorted(past, key=lambda trial: trial.trial)
        super().__init__(
            space={dimension.path: distribution(dimension) for dimension in space.dimensions},
            metric=METRIC,
            mode="max",
            sampler=sampler,
        )
        self.tell = tell
        self.numbers = [trial.trial for trial in past if trial.status == "running"]
        self.next = 1 + max((trial.trial for trial in past), default=-1)
        study: Any = self._ot_study
        self.given: dict[str, int] = {}  # Ray's name of a trial -> its number
        for trial in past:  # in the order they were drawn, on which the next draw depends
            if trial.status == "running":
                study.enqueue_trial(dict(trial.drawn))
            else:
                failed = trial.rank[0]  # without a score
                self.add_evaluated_point(dict(trial.drawn), 0.0 if failed else trial.score, error=failed)

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        drawn = super().suggest(trial_id)
        if drawn is None:
            return None
        if trial_id not in self.given:
            if self.numbers:
                self.given[trial_id] = self.numbers.pop(0)
            else:
                self.given[trial_id], self.next = self.next, self.next + 1
            self.tell(self.given[trial_id], drawn)
        return {TRIAL: self.given[trial_id], "drawn": drawn}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Nothing: how a trial ends counts here, and what it tells on the way is for the scheduler."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: a search goes on from its own record."""
        Path(checkpoint_path).touch()  # Ray renames it


def distribution(dimension: Dimension) -> BaseDistribution:
    """A dimension's range as Optuna takes it."""
    found = dimension.range
    if found.kind == "choice":
        return CategoricalDistribution(range(int(found.high) + 1))
    if found.kind == "int":
        return IntDistribution(int(found.low), int(found.high), log=found.log)
    return FloatDistribution(found.low, found.high, log=found.log)
