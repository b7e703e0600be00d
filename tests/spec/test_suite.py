"""The benchmark suite: its rows are complete, and each spec is made for its row."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from spec_files import PACKAGED

import slm_lab.spec
from slm_lab.spec.load import dump, from_mapping, load
from slm_lab.spec.schema import Spec
from slm_lab.spec.suite import spec_hash

FOLDER = Path(slm_lab.spec.__file__).parent / "benchmark"
ROWS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "suite.yaml").read_text())

SETTINGS = ("frames", "num_envs", "log_frequency", "sessions")
KEYS = {"family", "env", "algorithm", "file", "name", *SETTINGS, "target", "best", "source"}
SMALL = {
    "classic": {
        "CartPole-v1": "REINFORCE SARSA DQN DDQN+PER A2C PPO SAC CrossQ A2C-SIL PPO-SIL",
        "Acrobot-v1": "DQN DDQN+PER A2C PPO SAC CrossQ",
        "Pendulum-v1": "A2C PPO SAC CrossQ",
    },
    "box2d": {
        "LunarLander-v3": "DQN DDQN+PER A2C PPO SAC CrossQ",
        "LunarLanderContinuous-v3": "A2C PPO SAC CrossQ",
        "BipedalWalker-v3": "PPO SAC",
    },
    "mujoco": {
        f"{name}-v5": "PPO SAC CrossQ"
        for name in (
            *("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum"),
            *("InvertedPendulum", "Pusher", "Reacher", "Swimmer", "Walker2d"),
        )
    },
}
# millions of frames, of PPO, SAC and CrossQ
MUJOCO_FRAMES = {
    "Ant-v5": (10, 2, 3),
    "HalfCheetah-v5": (10, 4, 4),
    "Hopper-v5": (4, 3, 3),
    "Humanoid-v5": (10, 1, 2),
    "HumanoidStandup-v5": (4, 1, 2),
    "InvertedDoublePendulum-v5": (10, 2, 2),
    "InvertedPendulum-v5": (4, 2, 7),
    "Pusher-v5": (4, 1, 2),
    "Reacher-v5": (4, 1, 2),
    "Swimmer-v5": (4, 2, 3),
    "Walker2d-v5": (10, 3, 7),
}
CLASSES = {
    "REINFORCE": ("Reinforce", "OnPolicyBatchReplay"),
    "SARSA": ("SARSA", "OnPolicyBatchReplay"),
    "DQN": ("DQN", "Replay"),
    "DDQN+PER": ("DoubleDQN", "PrioritizedReplay"),
    "A2C": ("ActorCritic", "OnPolicyBatchReplay"),
    "PPO": ("PPO", "OnPolicyBatchReplay"),
    "SAC": ("SoftActorCritic", "Replay"),
    "CrossQ": ("CrossQ", "Replay"),
    "A2C-SIL": ("SIL", "OnPolicyBatchReplay"),
    "PPO-SIL": ("PPOSIL", "OnPolicyBatchReplay"),
}
# what single rows do otherwise, each with its reason in the spec: no other row may
OTHER_CLASSES = {"LunarLanderContinuous-v3 CrossQ": ("CrossQ", "PrioritizedReplay")}
SOONER_AT_ZERO = {
    "LunarLander-v3 DDQN+PER": 230_000,
    "LunarLanderContinuous-v3 CrossQ": 230_000,
    "InvertedPendulum-v5 SAC": 900_000,
    "InvertedPendulum-v5 CrossQ": 3_500_000,
    "InvertedDoublePendulum-v5 SAC": 900_000,
    "InvertedDoublePendulum-v5 CrossQ": 900_000,
}


def cell(row: dict[str, Any]) -> str:
    return f"{row['env']} {row['algorithm']}"


def of_family(family: str) -> list[dict[str, Any]]:
    return [row for row in ROWS if row["family"] == family]


@cache
def spec_of(index: int) -> Spec:
    row = ROWS[index]
    return load(FOLDER / row["file"], row["name"], row.get("sets", ())).spec


def specs() -> list[tuple[dict[str, Any], Spec]]:
    return [(row, spec_of(index)) for index, row in enumerate(ROWS)]


def test_every_row_has_the_same_keys_with_values_that_fit() -> None:
    for row in ROWS:
        assert row.keys() - {"sets"} == KEYS, cell(row)
        assert all(type(row[key]) is int for key in SETTINGS), cell(row)
        assert all(isinstance(row[key], int | float | None) for key in ("target", "best")), cell(row)
        assert row["source"] in ((None,) if row["best"] is None else ("docs", "upstream")), cell(row)


def test_no_two_rows_are_the_same_cell() -> None:
    assert [name for name, count in Counter(map(cell, ROWS)).items() if count > 1] == []


@pytest.mark.parametrize(("family", "count"), [("classic", 10 + 6 + 4), ("box2d", 6 + 4 + 2), ("mujoco", 11 * 3)])
def test_every_cell_of_the_small_families_is_there(family: str, count: int) -> None:
    wanted = {f"{env} {algorithm}" for env, algorithms in SMALL[family].items() for algorithm in algorithms.split()}
    assert {cell(row) for row in of_family(family)} == wanted
    assert len(wanted) == count


def test_every_game_and_task_with_a_score_is_there() -> None:
    # of 63 games five are never tried, and ElevatorAction is PPO's alone
    games = Counter(row["algorithm"] for row in of_family("atari"))
    assert games == {"PPO": 63 - 5, "A2C": 63 - 6, "SAC": 63 - 6, "CrossQ": 6}
    # DM Control, locomotion, manipulation
    assert Counter(row["algorithm"] for row in of_family("playground")) == {"PPO": 25 + 19 + 10}
    assert len(ROWS) == 20 + 12 + 33 + (58 + 57 + 57 + 6) + 54


def settings(row: dict[str, Any]) -> tuple[float, int, int]:
    """(frames, num_envs, log_frequency) of a cell, as published tables have them."""
    if row["env"] == "BipedalWalker-v3":
        return 1e6, 32 if row["algorithm"] == "PPO" else 16, 10_000
    match row["family"]:
        case "classic":
            return 2e5 if row["env"] == "CartPole-v1" else 3e5, 4, 500
        case "box2d":
            return 3e5, 8, 1000
        case "mujoco":
            millions = MUJOCO_FRAMES[row["env"]][("PPO", "SAC", "CrossQ").index(row["algorithm"])]
            return millions * 1e6, 16, 10_000
        case "atari":
            return 2e6 if row["algorithm"] in ("SAC", "CrossQ") else 1e7, 16, 10_000
        case _:
            return 1e8, 2048, 100_000


def test_budgets_are_those_of_published_tables() -> None:
    for row in ROWS:
        assert (row["frames"], row["num_envs"], row["log_frequency"]) == settings(row), cell(row)
        assert row["sessions"] == 4, cell(row)


def test_every_spec_is_made_for_its_row() -> None:
    for row, spec in specs():
        continuous = spec.env.name == "LunarLander-v3" and spec.env.kwargs.get("continuous") is True
        env = "LunarLanderContinuous-v3" if continuous else spec.env.name
        got = (env, spec.env.max_frame, spec.env.num_envs, spec.meta.log_frequency, spec.meta.max_session)
        assert got == (row["env"], *(row[key] for key in SETTINGS)), cell(row)


def test_every_spec_trains_the_algorithm_of_its_row() -> None:
    for row, spec in specs():
        got = spec.agent.algorithm["name"], spec.agent.memory["name"]
        assert got == OTHER_CLASSES.get(cell(row), CLASSES[row["algorithm"]]), cell(row)


def test_learning_rates_that_fall_do_so_over_the_whole_run_but_for_named_rows() -> None:
    falling = 0
    for row, spec in specs():
        for net in (spec.agent.net, spec.agent.critic_net or {}):
            schedule = net.get("lr_scheduler_spec")
            if schedule is not None:
                assert schedule["frame"] == SOONER_AT_ZERO.get(cell(row), row["frames"]), cell(row)
                falling += 1
    assert falling > 0


@pytest.mark.parametrize("path", [path for path in PACKAGED if path.suffix == ".json"], ids=lambda path: path.stem)
def test_reasons_are_given_for_keys_that_are_there(path: Path) -> None:
    entries = json.loads(path.read_text())
    reasons = entries.pop("_why")
    assert reasons.keys() == entries.keys()
    for name, why in reasons.items():
        assert why, name
        for dotted in why:
            node = entries[name]
            for key in dotted.split("."):
                assert key in node, f"{name}: {dotted}"
                node = node[key]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"meta": {"experiment_ts": "later"}}, True),
        ({"meta": {"rigorous_eval": 0}}, True),  # its default, written out
        ({"search": {"agent.algorithm.gamma__uniform": [0.9, 0.99]}}, True),
        ({"meta": {"random_seed": 7}}, False),
        ({"env": {"num_envs": 8}}, False),
        ({"agent": {"algorithm": {"gamma": 0.5}}}, False),
    ],
)
def test_the_hash_of_a_spec_changes_with_what_decides_its_numbers_and_with_nothing_else(
    change: dict[str, Any], same: bool
) -> None:
    spec = load(FOLDER / "ppo" / "ppo_cartpole.json", "ppo_cartpole").spec
    tree = dump(spec)
    for section, values in change.items():
        for key, value in values.items():
            old = tree[section].get(key)
            tree[section][key] = {**old, **value} if isinstance(old, dict) else value
    assert (spec_hash(from_mapping(tree, spec.name).spec) == spec_hash(spec)) is same
