from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from slm_lab.env.slot import Slot
from slm_lab.spec.schema import EnvSpec


def spec(name: str, **rest: Any) -> EnvSpec:
    return EnvSpec(name=name, max_frame=1, **rest)


def play(slot: Slot, actions: Any) -> list[Any]:
    """Everything a slot says while it takes actions, with resets in between."""
    said = []
    for action in actions:
        obs, reward, terminated, truncated, _ = slot.step(action)
        said.append((obs.tolist(), reward, terminated, truncated))
        if terminated or truncated:
            said.append(slot.reset().tolist())
    return said


def test_a_slot_gives_the_numbers_of_a_plain_env_with_the_same_seed() -> None:
    slot, env = Slot(spec("CartPole-v1"), seed=5), gym.make("CartPole-v1")
    assert np.array_equal(slot.reset(), env.reset(seed=5)[0])
    ends = 0
    for action in np.random.default_rng(0).integers(0, 2, 100):
        ours, theirs = slot.step(action), env.step(action)
        assert np.array_equal(ours[0], theirs[0])
        assert ours[1:4] == theirs[1:4]
        if ours[2] or ours[3]:
            ends += 1
            assert np.array_equal(slot.reset(), env.reset()[0])
    assert ends >= 2


def test_max_t_truncates_where_smaller_than_the_registered_limit() -> None:
    for max_t, expected in ((7, 7), (10_000, 200), (None, 200)):
        slot = Slot(spec("Pendulum-v1", max_t=max_t), seed=0)
        slot.reset()
        length = next(t for t in range(1, 300) if slot.step(np.zeros(1, np.float32))[3])
        assert length == expected


def test_max_t_truncates_an_env_of_the_users_own() -> None:
    slot = Slot(spec("tiny_envs:Countdown", length=50, max_t=4), seed=0)
    slot.reset()
    assert [slot.step(0)[2:4] for _ in range(4)] == [(False, False)] * 3 + [(False, True)]


def test_a_slot_comes_back_in_its_first_episode_from_the_seed() -> None:
    slot, other = Slot(spec("CartPole-v1"), seed=5), Slot(spec("CartPole-v1"), seed=6)
    slot.reset()
    play(slot, [0, 1, 0])
    state = slot.state_dict()
    assert state["rng"] is None
    assert state["actions"].tolist() == [0, 1, 0]
    assert other.load_state_dict(state)
    actions = np.random.default_rng(1).integers(0, 2, 80)
    assert play(other, actions) == play(slot, actions)


def test_a_slot_comes_back_in_a_later_episode_from_the_state_before_its_reset() -> None:
    slot, other = Slot(spec("CartPole-v1"), seed=5), Slot(spec("CartPole-v1"), seed=6)
    slot.reset()
    play(slot, [0] * 13)  # always left ends an episode after 8 to 10 steps
    state = slot.state_dict()
    assert state["rng"]["bit_generator"] == "PCG64"
    assert 0 < len(state["actions"]) < 13
    assert other.load_state_dict(state)
    actions = np.random.default_rng(1).integers(0, 2, 80)
    assert play(other, actions) == play(slot, actions)


def test_a_saved_state_does_not_move_on_with_the_env() -> None:
    slot = Slot(spec("CartPole-v1"), seed=5)
    slot.reset()
    play(slot, [0, 1])
    state = slot.state_dict()
    kept = state["obs"].copy()
    play(slot, [0] * 20)
    assert state["actions"].tolist() == [0, 1]
    assert np.array_equal(state["obs"], kept)


def test_a_slot_that_was_never_reset_has_no_episode_to_save() -> None:
    slot, other = Slot(spec("CartPole-v1"), seed=5), Slot(spec("CartPole-v1"), seed=6)
    assert other.load_state_dict(slot.state_dict())
    assert np.array_equal(other.reset(), slot.reset())


def test_an_env_that_does_not_repeat_itself_is_told() -> None:
    slot, other = Slot(spec("tiny_envs:Unrepeatable"), seed=5), Slot(spec("tiny_envs:Unrepeatable"), seed=5)
    slot.reset()
    slot.step(0)
    assert not other.load_state_dict(slot.state_dict())


def test_a_replay_that_ends_early_goes_on_with_a_new_episode() -> None:
    long, short = (Slot(spec("tiny_envs:Countdown", length=length), seed=5) for length in (9, 2))
    long.reset()
    play(long, [0] * 5)
    assert not short.load_state_dict(long.state_dict())
    assert short.obs.tolist() == [0]
    assert short.step(0)[0].tolist() == [1]


def test_bipedal_walker_gets_a_new_env_for_every_episode_with_its_random_state() -> None:
    slot, plain = Slot(spec("BipedalWalker-v3", max_t=3), seed=1), Slot(spec("LunarLander-v3", max_t=3), seed=1)
    for each, fresh in ((slot, True), (plain, False)):
        each.reset()
        env, random = each.env, each.env.unwrapped.np_random
        each.reset()
        assert (each.env is not env) == fresh
        assert each.env.unwrapped.np_random is random
