from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from specs_for_tests import NET, tiny_session, tiny_spec

from slm_lab.agent import Agent, Player
from slm_lab.agent.context import Context, with_entries, with_spaces
from slm_lab.agent.normalize import NormalizedMemory, ObsNormalizer
from slm_lab.experiment.session import Session
from slm_lab.lib.rng import Rng
from slm_lab.types import MASK, Act, Array, Batch, Sequences, Spaces

REAL, FLAG, BYTE = np.dtype(np.float32), np.dtype(bool), np.dtype(np.uint8)
OBS = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
ALLOWED = np.array([[True, False, True], [False, True, True]])
HIDDEN = "hidden.value"
RECURRENT = {
    "type": "RecurrentNet",
    "rnn_hidden_size": 8,
    "seq_len": 4,
    "optim_spec": NET["optim_spec"],
}


def entries(obs: Any) -> dict[str, Array]:
    assert isinstance(obs, dict)
    return obs


def act(hidden: dict[str, Array]) -> Act:
    return Act(np.zeros(2), np.zeros(2), {}, hidden)


def recurrent(env: str = "CartPole-v1", /, **overrides: Any) -> Session:
    return tiny_session(tiny_spec("DQN", env, **{"agent.net": RECURRENT, **overrides}))


# entries ----------------------------------------------------------------------------------------------------------


def test_where_there_is_nothing_to_add_observations_stay_as_they_are() -> None:
    several = {"a": OBS}
    assert with_entries(OBS, None, {}) is OBS
    assert with_entries(several, None, {}) is several
    assert Context({}, 2)(OBS, None) is OBS


def test_one_array_becomes_an_entry_beside_what_is_added() -> None:
    remembered = np.ones((2, 3), np.float32)
    masked, both = entries(with_entries(OBS, ALLOWED, {})), entries(with_entries(OBS, ALLOWED, {HIDDEN: remembered}))
    assert list(masked) == ["obs", MASK]
    assert list(both) == ["obs", MASK, HIDDEN]
    assert list(entries(with_entries(OBS, None, {HIDDEN: remembered}))) == ["obs", HIDDEN]
    assert (both["obs"] is OBS, both[MASK] is ALLOWED, both[HIDDEN] is remembered) == (True, True, True)


def test_entries_of_the_env_stay_first_and_its_own_dict_as_it_was() -> None:
    several = {"b": OBS, "a": OBS}
    assert list(entries(with_entries(several, ALLOWED, {HIDDEN: OBS}))) == ["b", "a", MASK, HIDDEN]
    assert list(several) == ["b", "a"]


@pytest.mark.parametrize("mask_size", [0, 3])
@pytest.mark.parametrize("hidden", [{}, {HIDDEN: 4}, {"hidden.q1": 4, "hidden.q2": 5}])
@pytest.mark.parametrize("several", [False, True])
def test_spaces_are_those_of_the_entries(mask_size: int, hidden: dict[str, int], several: bool) -> None:
    if several:
        spaces = Spaces({"a": (2,), "b": (1, 6, 6)}, {"a": REAL, "b": BYTE}, "discrete", 3, 2, mask_size=mask_size)
        obs: Any = {"a": OBS, "b": np.zeros((2, 1, 6, 6), np.uint8)}
    else:
        spaces, obs = Spaces((2,), REAL, "discrete", 3, 2, mask_size=mask_size), OBS
    shown = Context(hidden, 2)(obs, ALLOWED if mask_size else None)
    wide = with_spaces(spaces, hidden)
    if isinstance(shown, dict):
        assert isinstance(wide.obs_shape, dict)
        assert isinstance(wide.obs_dtype, dict)
        assert list(shown) == list(wide.obs_shape) == list(wide.obs_dtype)
        assert {key: value.shape[1:] for key, value in shown.items()} == wide.obs_shape
        assert {key: value.dtype for key, value in shown.items()} == wide.obs_dtype
    else:
        assert wide is spaces
    assert (wide.action_kind, wide.action_dim, wide.num_envs) == ("discrete", 3, 2)


# remembering ------------------------------------------------------------------------------------------------------


def test_a_context_starts_with_zeros_and_carries_what_a_decision_left() -> None:
    context = Context({HIDDEN: 2, "hidden.q": 1}, 2)
    assert {key: value.tolist() for key, value in context.hidden.items()} == {
        HIDDEN: [[0, 0], [0, 0]],
        "hidden.q": [[0], [0]],
    }
    left: dict[str, Array] = {HIDDEN: OBS, "hidden.q": OBS[:, :1]}
    context.carry(act(left), np.array([False, True]))
    shown = entries(context(OBS, None))
    assert shown[HIDDEN].tolist() == [[1, 2], [0, 0]]  # nothing of the episode that ended
    assert shown["hidden.q"].tolist() == [[1], [0]]
    assert shown[HIDDEN].dtype == np.float32
    assert OBS.tolist() == [[1, 2], [3, 4]]  # what it was given is as it was


def test_without_a_memory_there_is_nothing_to_carry() -> None:
    context = Context({}, 2)
    context.carry(act({HIDDEN: OBS}), np.array([False, True]))
    assert context(OBS, None) is OBS
    assert context.state_dict() == {}


def test_a_context_brought_back_goes_on_where_it_was() -> None:
    context, other = Context({HIDDEN: 2}, 2), Context({HIDDEN: 2}, 2)
    context.carry(act({HIDDEN: OBS}), np.array([False, False]))
    state = context.state_dict()
    other.load_state_dict(state)
    state[HIDDEN][:] = 9  # both hold copies
    assert context.hidden[HIDDEN].tolist() == other.hidden[HIDDEN].tolist() == [[1, 2], [3, 4]]


# agents -----------------------------------------------------------------------------------------------------------


def test_an_agent_remembers_an_episode_and_forgets_it_at_its_end() -> None:
    session = recurrent()
    agent, ends = session.agent, 0
    for _ in range(40):
        seen = agent.see(session.env.obs, session.env.action_mask)
        decision = agent.act(seen, 0)
        step = session.env.step(decision.env_action)
        agent.learn(seen, decision, step, 0)
        ended = step.terminated | step.truncated
        assert (agent.context.hidden[HIDDEN] == 0).all(1).tolist() == ended.tolist()
        assert np.array_equal(agent.context.hidden[HIDDEN][~ended], decision.hidden[HIDDEN][~ended])
        ends += int(ended.sum())
    assert ends > 2


def everything(agent: Agent) -> dict[str, Any]:
    """What training would change, as plain numbers."""
    weights = {name: tensor.tolist() for name, tensor in agent.algorithm.nets.state_dict().items()}
    remembered = {entry: value.tolist() for entry, value in agent.context.hidden.items()}
    rng = agent.rng.torch.get_state().tolist(), copy.deepcopy(agent.rng.numpy.bit_generator.state)
    normalizer = {} if agent.normalizer is None else agent.normalizer.state_dict()
    statistics = {
        key: {name: np.asarray(x).tolist() for name, x in moments.items()} for key, moments in normalizer.items()
    }
    return {"weights": weights, "remembered": remembered, "rng": rng, "statistics": statistics}


@pytest.mark.parametrize("rng", [None, 3])
def test_a_player_forgets_at_the_end_of_an_episode_and_leaves_the_agent_as_it_is(rng: int | None) -> None:
    session = recurrent(max_frame=80, normalize_obs=True)
    session.run()
    agent, obs = session.agent, np.asarray(session.env.obs)[:2]
    before = everything(agent)
    assert np.any(before["remembered"][HIDDEN])
    player = Player(agent, 2)
    assert not player.context.hidden[HIDDEN].any()  # an episode of its own
    stream = None if rng is None else Rng(rng)
    for ended in ([False, False], [True, False], [False, True], [True, True]):
        assert player(obs, None, stream).shape == (2,)
        assert player.last is not None
        left = player.last.hidden[HIDDEN]
        assert (left != 0).any(1).all()
        player.ended(np.array(ended))
        assert np.array_equal(player.context.hidden[HIDDEN], np.where(np.array(ended)[:, None], 0, left))
    assert everything(agent) == before


def test_after_an_end_a_player_decides_as_a_new_one_does() -> None:
    session = recurrent()
    obs = np.asarray(session.env.obs)[:1]
    old, new = Player(session.agent, 1), Player(session.agent, 1)
    for value in (obs, obs + 1):
        old(value)
        old.ended(np.array([False]))
    assert np.any(old.context.hidden[HIDDEN])
    old(obs)
    old.ended(np.array([True]))
    old(obs)
    new(obs)
    assert old.last is not None
    assert new.last is not None
    assert np.array_equal(old.last.hidden[HIDDEN], new.last.hidden[HIDDEN])


def test_a_player_that_has_not_acted_yet_has_nothing_to_carry() -> None:
    player = Player(recurrent().agent, 2)
    player.ended(np.array([False, True]))
    assert not player.context.hidden[HIDDEN].any()


def test_a_player_takes_allowed_actions_alone() -> None:
    session = tiny_session(tiny_spec("DQN", "task_envs:Masked"))
    player, rng = Player(session.agent, 4), Rng(0)
    obs = np.zeros((4, 4), np.float32)
    for action in range(4):
        mask = np.zeros((4, 4), bool)
        mask[:, action] = True
        assert player(obs, mask).tolist() == player(obs, mask, rng).tolist() == [action] * 4


# normalising ------------------------------------------------------------------------------------------------------


def test_a_normaliser_leaves_masks_and_memories_alone() -> None:
    normalizer = ObsNormalizer((2,), normalize=True, clip=0.5)
    remembered = np.array([[7.0], [-7.0]], np.float32)
    obs = with_entries(OBS, ALLOWED, {HIDDEN: remembered})
    normalizer.update(obs)
    out = entries(normalizer(obs))
    assert list(normalizer.moments) == ["obs"]
    # means 2 and 3, deviations 1: -1 and 1, clipped
    assert np.allclose(out["obs"], [[-0.5, -0.5], [0.5, 0.5]])
    assert out[MASK] is ALLOWED
    assert out[HIDDEN] is remembered


def test_stretches_are_normalised_but_for_masks_and_memories() -> None:
    normalizer = ObsNormalizer((1,), normalize=True, clip=None)
    # mean 5, deviation 2, but for the trace of a start at 0 and 1 that all statistics keep
    normalizer.update({"obs": np.array([[3.0], [7.0]], np.float32)})
    stretch = {
        "obs": torch.tensor([[[5.0], [7.0]], [[9.0], [3.0]]]),
        MASK: torch.tensor([[[True], [False]], [[False], [True]]]),
        HIDDEN: torch.full((2, 2, 3), 5.0),
    }
    first, keep = torch.tensor([[True, True], [False, True]]), torch.tensor([2, 3])
    obs, rows = Sequences(stretch, first, keep, 1), torch.zeros(2)

    class Given:
        def sample(self) -> Batch:
            return Batch(obs, rows, rows, obs, rows > 0, rows > 0)

        def feedback(self, batch: Batch, error: torch.Tensor) -> None: ...

    batch = NormalizedMemory(Given(), normalizer).sample()
    for shown in (batch.obs, batch.next_obs):
        assert isinstance(shown, Sequences)
        assert shown.entries["obs"].flatten().tolist() == pytest.approx([0, 1, 2, -1], abs=1e-3)
        assert torch.equal(shown.entries[MASK], stretch[MASK])
        assert torch.equal(shown.entries[HIDDEN], stretch[HIDDEN])
        assert (shown.first is first, shown.keep is keep, shown.burn_in) == (True, True, 1)


def test_an_agent_shows_its_net_normalised_numbers_with_plain_masks_and_memories() -> None:
    session = recurrent("task_envs:Masked", normalize_obs=True, max_frame=200)
    session.run()
    agent = session.agent
    seen = agent.see(session.env.obs, session.env.action_mask)
    raw, shown = entries(seen.raw), entries(seen.shown)
    assert list(raw) == list(shown) == ["obs", MASK, HIDDEN]
    assert raw[HIDDEN].any()
    assert np.array_equal(raw[MASK], shown[MASK])
    assert np.array_equal(raw[HIDDEN], shown[HIDDEN])
    assert not np.allclose(raw["obs"], shown["obs"])
    assert session.clock.opt_step > 0
