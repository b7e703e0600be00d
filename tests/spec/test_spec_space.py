"""Search spaces: what is drawn, what it becomes in the spec, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from slm_lab.agent.plan import plan_agent
from slm_lab.lib.errors import SpecError
from slm_lab.spec.load import from_mapping
from slm_lab.spec.schema import Spec
from slm_lab.spec.space import SPACES, Dimension, Range, parse_space, with_values


def check(spec: Spec) -> None:
    plan_agent(spec.agent, spec.env.num_envs, [])


def searching(search: dict[str, Any]) -> Spec:
    """A small DQN spec with a search space."""
    data = {
        "agent": {
            "name": "DQN",
            "algorithm": {
                "name": "DQN",
                "action_pdtype": "Argmax",
                "action_policy": "epsilon_greedy",
                "explore_var_spec": {"name": "no_decay", "start_val": 0.1},
                "gamma": 0.99,
                "training_frequency": 4,
            },
            "memory": {"name": "Replay", "batch_size": 32, "max_size": 1000},
            "net": {"type": "MLPNet", "hid_layers": [8], "optim_spec": {"name": "Adam", "lr": 0.01}},
        },
        "env": {"name": "CartPole-v1", "max_frame": 1000},
        "meta": {"max_session": 1, "max_trial": 2},
        "search": search,
    }
    return from_mapping(data, "dqn").spec


def dimension(space: str, *args: Any) -> Dimension:
    return Dimension("agent.algorithm.gamma", space, args)


@pytest.mark.parametrize(
    ("space", "args", "expected"),
    [
        ("choice", ([8], [8, 8], [16]), Range("choice", 0, 2)),
        ("uniform", (0.5, 0.9), Range("float", 0.5, 0.9)),
        ("loguniform", (1e-4, 1e-2), Range("float", 1e-4, 1e-2, log=True)),
        ("randint", (2, 6), Range("int", 2, 5)),  # the upper end is left out
        ("lograndint", (2, 6), Range("int", 2, 5, log=True)),
        ("quniform", (0.1, 0.5, 0.1), Range("int", 1, 5)),  # multiples of 0.1
        ("qrandint", (5, 30, 10), Range("int", 1, 3)),  # 10, 20, 30
        ("qloguniform", (0.01, 1.0, 0.01), Range("float", 0.01, 1.0, log=True)),
        ("qlograndint", (8, 64, 8), Range("float", 8, 64, log=True)),
        ("randn", (0.0, 1.0), Range("float", 0.001, 0.999)),
    ],
)
def test_each_space_draws_a_plain_number(space: str, args: tuple[Any, ...], expected: Range) -> None:
    assert dimension(space, *args).range == expected


@pytest.mark.parametrize(
    ("space", "args", "drawn", "value"),
    [
        ("choice", ([8], [8, 8], [16]), 1, [8, 8]),
        ("uniform", (0.5, 0.9), 0.75, 0.75),
        ("randint", (2, 6), 5, 5),
        ("quniform", (0.1, 0.5, 0.1), 3, 0.3),  # not 0.30000000000000004
        ("qrandint", (5, 30, 10), 2, 20),
        ("qloguniform", (0.01, 1.0, 0.01), 0.0249, 0.02),
        ("qloguniform", (0.015, 1.0, 0.01), 0.015, 0.02),  # 0.01 lies below the space
        ("qlograndint", (8, 64, 8), 13.0, 16),  # 13 / 8 = 1.6, so two eights
        ("randn", (5.0, 2.0), 0.5, 5.0),  # the median
        ("randn", (5.0, 2.0), 0.8413447460685429, 7.0),  # one deviation above it
        ("qrandn", (5.0, 2.0, 0.5), 0.8, 6.5),  # 5 + 2 * 0.8416 = 6.68
    ],
)
def test_a_draw_becomes_a_value_of_the_spec(space: str, args: tuple[Any, ...], drawn: float, value: Any) -> None:
    found = dimension(space, *args).value(drawn)
    assert found == (pytest.approx(value) if isinstance(value, float) and "randn" in space else value)
    assert type(found) is type(value)


def test_dotted_and_nested_keys_mean_the_same() -> None:
    dotted = searching({"agent.algorithm.gamma__uniform": [0.9, 0.99], "env.num_envs__choice": [1, 2]})
    nested = searching({"agent": {"algorithm": {"gamma__uniform": [0.9, 0.99]}}, "env": {"num_envs__choice": [1, 2]}})
    listed = searching({"agent.0.algorithm.gamma__uniform": [0.9, 0.99], "env.0.num_envs__choice": [1, 2]})
    assert parse_space(dotted, [], check) == parse_space(nested, [], check) == parse_space(listed, [], check)


def test_a_draw_makes_a_spec_without_a_search_space() -> None:
    spec = searching(
        {"agent.net.hid_layers__choice": [[8], [16, 16]], "agent.net.optim_spec.lr__loguniform": [1e-4, 1]}
    )
    space = parse_space(spec, [], check)
    values = space.values({"agent.net.hid_layers": 1, "agent.net.optim_spec.lr": 0.001})
    assert values == {"agent.net.hid_layers": [16, 16], "agent.net.optim_spec.lr": 0.001}
    drawn = with_values(spec, values, check)
    assert drawn.agent.net["hid_layers"] == [16, 16]
    assert drawn.agent.net["optim_spec"] == {"name": "Adam", "lr": 0.001}
    assert drawn.search == {}
    assert spec.agent.net["hid_layers"] == [8]  # the searched spec stays as it is


def test_a_value_can_be_set_where_the_spec_has_none() -> None:
    spec = searching({"agent.net.clip_grad_val__uniform": [0.5, 1.0], "agent.net.loss_spec.name__choice": ["MSELoss"]})
    drawn = with_values(spec, {"agent.net.loss_spec.name": "SmoothL1Loss"}, check)
    assert drawn.agent.net["loss_spec"] == {"name": "SmoothL1Loss"}
    assert len(parse_space(spec, [], check).dimensions) == 2


def test_numbers_may_come_as_text_and_grid_search_is_a_choice() -> None:
    spec = searching(
        {"agent.algorithm.gamma__grid_search": [0.9, 0.99], "agent.net.optim_spec.lr__uniform": ["1e-4", 1]}
    )
    first, second = parse_space(spec, [], check).dimensions
    assert first == Dimension("agent.algorithm.gamma", "choice", (0.9, 0.99))
    assert second.args == (1e-4, 1.0)


def test_keys_that_nothing_reads_warn_where_public_specs_have_them() -> None:
    notes: list[str] = []
    spec = searching({"agent.algorithm.clip_eps__uniform": [0.1, 0.3], "agent.algorithm.gamma__uniform": [0.9, 0.99]})
    assert [found.path for found in parse_space(spec, notes, check).dimensions] == ["agent.algorithm.gamma"]
    assert notes == [
        "search.agent.algorithm.clip_eps__uniform: nothing reads agent.algorithm.clip_eps; ignored. "
        "Meant: agent.algorithm.clip_eps_spec.start_val?"
    ]


@pytest.mark.parametrize(
    ("search", "told"),
    [
        ({}, "has no search space"),
        ({"agent.algorithm.gama__uniform": [0.9, 0.99]}, "Did you mean 'gamma'?"),
        ({"agent.algorithm.training_batch_iter_choice": [1, 2]}, "must end in `__` and a space"),
        ({"agent.algorithm.gamma__unifrom": [0.9, 0.99]}, "Did you mean 'uniform'?"),
        ({"agent.algorithm.gamma__uniform": [0.99, 0.9]}, "low < high"),
        ({"agent.algorithm.gamma__uniform": [0.9]}, "[low, high], all numbers"),
        ({"agent.algorithm.gamma__uniform": [0.9, "x"]}, "[low, high], all numbers"),
        ({"agent.algorithm.gamma__uniform": [0.9, True]}, "[low, high], all numbers"),
        ({"agent.algorithm.gamma__uniform": 0.9}, "a list of arguments"),
        ({"agent.algorithm.gamma__loguniform": [0, 0.9]}, "0 < low < high"),
        ({"agent.algorithm.gamma__quniform": [0.1, 0.9, 2]}, "0 < step <= high - low"),
        ({"agent.algorithm.gamma__randn": [0.9, 0]}, "deviation and step above 0"),
        ({"agent.algorithm.training_frequency__randint": [1, 2.5]}, "all whole numbers"),
        ({"agent.algorithm.gamma__choice": []}, "one item or more"),
        ({"agent.algorithm.gamma__uniform": [0.5, 1.5]}, "agent.algorithm.gamma = 1.5"),  # an end that cannot be
        ({"agent.memory.batch_size__choice": [32, -1]}, "agent.memory.batch_size = -1"),
        ({"env.num_envs.x__choice": [1]}, "nothing can be set below it"),
        ({"agent.algorithm.clip_eps__uniform": [0.1, 0.3]}, "nothing reads any of its keys"),
        (
            {"agent.algorithm.gamma__uniform": [0.9, 0.99], "agent": {"algorithm": {"gamma__choice": [1]}}},
            "is searched twice",
        ),
    ],
)
def test_what_cannot_be_searched_is_told(search: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_space(searching(search), [], check)
    assert told in str(error.value)


def test_every_space_has_values_that_lie_in_it() -> None:
    for space in SPACES[:-1]:
        args = ([1], [2]) if space == "choice" else (1, 9, 2) if space.startswith("q") else (1, 9)
        found = list(Dimension("x", space, args).samples())
        assert found == [[1], [2]] if space == "choice" else all(0 <= value <= 9 for value in found), space
