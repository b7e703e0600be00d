"""What a search draws next: it follows from the seed and the trials so far, and numbers are given once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from search_helpers import GAMMA, LAYERS, drawn, searched_spec, space_of

from slm_lab.experiment.sampler import METRIC, TRIAL, NumberedSearch, StatelessSampler, distribution
from slm_lab.experiment.search_record import Drawn, Ending
from slm_lab.spec.space import Dimension

SPACE = space_of(searched_spec())
STARTUP = 3
Draw = tuple[int, dict[str, float]]


def searcher(past: Sequence[Drawn] = (), told: list[Draw] | None = None, seed: int = 3) -> NumberedSearch:
    heard = [] if told is None else told
    return NumberedSearch(
        SPACE, StatelessSampler(seed, STARTUP), past, lambda number, found: heard.append((number, found))
    )


def as_draw(suggested: Mapping[str, object] | None) -> Draw:
    assert suggested is not None
    number, found = suggested[TRIAL], suggested["drawn"]
    assert isinstance(number, int)
    assert isinstance(found, dict)
    return number, found


def score_of(number: int, found: Mapping[str, float]) -> float:
    return 100 * found[GAMMA] - found[LAYERS] + number  # later ones do better: the sampler draws around several of them


def sequence(count: int, past: Sequence[Drawn] = (), seed: int = 3) -> list[Drawn]:
    """Trials one after the other, each told to the sampler before the next is drawn; trial 2 fails."""
    search, trials = searcher(past, seed=seed), {trial.trial: trial for trial in past if trial.status != "running"}
    while len(trials) < count:
        name = f"ray_{len(trials)}"
        number, found = as_draw(search.suggest(name))
        failed = number == 2
        score = math.nan if failed else score_of(number, found)
        search.on_trial_complete(name, None if failed else {METRIC: score}, error=failed)
        trials[number] = Drawn(number, found, SPACE.values(found), "failed" if failed else "done", 300, score)
    return [trials[number] for number in sorted(trials)]


def without_score(trials: Sequence[Drawn]) -> list[tuple[int, Mapping[str, float], Ending]]:
    return [(trial.trial, trial.drawn, trial.status) for trial in trials]


def test_draws_lie_in_the_space_and_differ() -> None:
    trials = sequence(8)
    assert all(0.9 <= trial.drawn[GAMMA] <= 0.99 and trial.drawn[LAYERS] in (0, 1) for trial in trials)
    assert len({trial.drawn[GAMMA] for trial in trials}) == 8
    assert without_score(sequence(8, seed=4)) != without_score(trials)


def test_a_trial_is_told_of_once_with_its_number_and_what_was_drawn() -> None:
    told = list[Draw]()
    search = searcher(told=told)
    first, second = as_draw(search.suggest("a")), as_draw(search.suggest("b"))
    assert as_draw(search.suggest("a")) == first  # asked again
    assert told == [first, second]
    assert [number for number, _ in told] == [0, 1]


@pytest.mark.parametrize("ended", [1, 3, 7, 13])
def test_a_search_that_goes_on_draws_what_it_would_have_drawn(ended: int) -> None:
    whole = sequence(16)
    assert without_score(sequence(16, whole[:ended])) == without_score(whole)


@pytest.mark.parametrize("running", [0, 2, 7, 13])
def test_so_it_does_where_a_trial_was_running(running: int) -> None:
    whole = sequence(16)
    cut = Drawn(running, whole[running].drawn, whole[running].values)
    assert without_score(sequence(16, [*whole[:running], cut])) == without_score(whole)


def test_trials_that_did_not_end_come_first_with_their_numbers_and_numbers_never_repeat() -> None:
    past = [
        drawn(0, 10.0, gamma=0.91),
        drawn(1, status="running", gamma=0.92, layers=1),
        drawn(2, status="failed", gamma=0.93),
        drawn(4, status="running", gamma=0.94),  # 3 was lost: its number is not given again
    ]
    told = list[Draw]()
    search = searcher(past, told)
    draws = [as_draw(search.suggest(name)) for name in ("a", "b", "c", "d")]
    assert draws[:2] == [(1, {GAMMA: 0.92, LAYERS: 1}), (4, {GAMMA: 0.94, LAYERS: 0})]
    assert [number for number, _ in draws[2:]] == [5, 6]
    assert told == draws


def test_past_trials_without_a_score_teach_nothing_and_break_nothing() -> None:
    def ended(status: Ending, score: float) -> list[Drawn]:
        return [drawn(n, score, status, gamma=0.9 + n / 100) for n in range(4)]

    failed, without, scored = (
        [as_draw(searcher(ended(status, score)).suggest("a"))]
        for status, score in (("failed", 1e9), ("done", math.nan), ("done", 1.0))
    )
    assert failed == without  # a trial that failed has no score, however high the last one it told
    assert scored != failed


def test_the_sampler_turns_to_what_did_well() -> None:
    past = [drawn(n, 100 * gamma, gamma=gamma) for n, gamma in enumerate([0.9 + 0.003 * n for n in range(30)])]
    search = searcher(past)
    found = [as_draw(search.suggest(str(n)))[1][GAMMA] for n in range(8)]
    assert sum(found) / len(found) > 0.96  # the middle of the space is 0.945


@pytest.mark.parametrize(
    ("space", "args", "expected"),
    [
        ("choice", ([8], [4, 4]), CategoricalDistribution((0, 1))),
        ("uniform", (0.5, 2.0), FloatDistribution(0.5, 2.0)),
        ("loguniform", (1e-4, 1e-2), FloatDistribution(1e-4, 1e-2, log=True)),
        ("randint", (2, 9), IntDistribution(2, 8)),
        ("lograndint", (2, 9), IntDistribution(2, 8, log=True)),
        ("quniform", (0.0, 1.0, 0.25), IntDistribution(0, 4)),
    ],
)
def test_spaces_as_the_sampler_takes_them(space: str, args: tuple[object, ...], expected: object) -> None:
    assert distribution(Dimension("agent.net.x", space, args)) == expected
