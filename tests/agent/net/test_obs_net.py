from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from slm_lab.agent.net import make_net, net_class
from slm_lab.agent.net.base import Head
from slm_lab.agent.net.obs_net import NEVER, ObsNet
from slm_lab.spec.parse import parse
from slm_lab.types import MASK, ObsShape, Sequences

MLP: dict[str, Any] = {"type": "MLPNet", "hid_layers": [5]}
RECURRENT: dict[str, Any] = {"type": "RecurrentNet", "rnn_hidden_size": 5, "seq_len": 4}
HEADS = [Head(4), Head(1)]
ALLOWED = torch.tensor([[True, True, False, False], [False, False, False, True], [True, True, True, True]])


def build(
    data: dict[str, Any] = MLP,
    obs_shape: ObsShape = (3,),
    heads: list[Head] = HEADS,
    name: str = "net",
    side: int = 0,
    acts: bool = True,
) -> ObsNet:
    spec = parse(net_class(data["type"], "agent.net.type").Spec, data, "agent.net", [])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make_net(spec, obs_shape, heads, name, side, acts)


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# masks ------------------------------------------------------------------------------------------------------------


def test_a_mask_rules_out_actions_of_the_first_head_alone() -> None:
    net, x = build(obs_shape={"obs": (3,), MASK: (4,)}), random(3, 3)
    logits, value = net({"obs": x, MASK: ALLOWED})
    plain, plain_value = net(x)
    assert torch.equal(logits[ALLOWED], plain[ALLOWED])
    assert logits[~ALLOWED].tolist() == [NEVER] * 5
    assert torch.equal(value, plain_value)


def test_of_two_heads_of_actions_the_second_is_left_alone() -> None:
    # no such net acts with a mask, but its second head would be a deviation
    logits, other = build(heads=[Head(4), Head(4)])({"obs": random(3, 3), MASK: ALLOWED})
    assert (logits == NEVER).sum() == 5
    assert (other == NEVER).sum() == 0


def test_a_net_whose_outputs_are_no_actions_does_not_see_the_mask() -> None:
    critic, x = build(heads=[Head(1)], acts=False), random(3, 3)
    assert torch.equal(critic({"obs": x, MASK: ALLOWED})[0], critic(x)[0])


def test_a_mask_is_no_input_of_a_net() -> None:
    net, x = build(obs_shape={"obs": (3,), MASK: (4,)}), random(3, 3)
    assert net.encoders is None
    everything = torch.ones_like(ALLOWED)
    assert torch.equal(net({"obs": x, MASK: ALLOWED})[1], net({"obs": x, MASK: everything})[1])
    several = build(obs_shape={"a": (3,), "b": (1,), MASK: (4,)})
    assert several.keys == ["a", "b"]
    assert several.encoders is not None
    assert several.encoders.keys == ["a", "b"]


def test_no_gradient_reaches_an_action_that_is_not_allowed() -> None:
    net = build()
    mask = torch.tensor([[True, True, False, True]] * 3)
    probs = net({"obs": random(3, 3), MASK: mask})[0].softmax(-1)
    head = net.net.heads[0]
    assert isinstance(head, nn.Linear)
    (gradient,) = torch.autograd.grad(probs[:, 0].sum(), head.bias)
    assert gradient[2] == 0
    assert (gradient[[0, 1, 3]] != 0).all()


def test_what_is_never_done_has_no_share_and_no_worth() -> None:
    logits = torch.tensor([[1.0, NEVER, NEVER], [-1000.0, NEVER, -1000.0]])
    probs = logits.softmax(-1)
    assert probs.tolist() == [[1, 0, 0], [0.5, 0, 0.5]]
    assert (probs * logits.log_softmax(-1)).sum(-1).tolist() == [0, pytest.approx(-0.693147)]


# stretches --------------------------------------------------------------------------------------------------------


def stretches(entries: dict[str, Tensor], burn_in: int = 1, first: Tensor | None = None) -> Sequences:
    """4 steps of 3 stretches; rows of the first step do not count, nor do two of the last."""
    first = torch.zeros(4, 3, dtype=torch.bool) if first is None else first
    first[0] = True
    return Sequences(entries, first, torch.tensor([3, 4, 5, 6, 7, 8, 10]), burn_in)


@pytest.mark.parametrize("masked", [False, True])
def test_a_net_without_a_memory_takes_the_rows_that_count_one_by_one(masked: bool) -> None:
    net, x = build(), random(4, 3, 3)
    mask = random(4, 3, 4, seed=2) > 0
    obs = stretches({"obs": x, "hidden.other": random(4, 3, 2)} | ({MASK: mask} if masked else {}))
    rows, allowed = x.flatten(0, 1)[obs.keep], mask.flatten(0, 1)[obs.keep]
    logits, value = net(obs)
    plain, plain_value = net(rows)
    expected = torch.where(allowed, plain, NEVER) if masked else plain
    assert torch.equal(logits, expected)
    assert torch.equal(value, plain_value)


def test_side_numbers_come_for_the_rows_that_count() -> None:
    net, x, side = build(side=2, acts=False), random(4, 3, 3), random(7, 2)
    obs = stretches({"obs": x})
    assert torch.equal(net(obs, side)[0], net(x.flatten(0, 1)[obs.keep], side)[0])


def test_entries_of_stretches_are_encoded_row_by_row() -> None:
    net = build(obs_shape={"a": (3,), "b": (2,)})
    a, b = random(4, 3, 3), random(4, 3, 2)
    obs = stretches({"a": a, "b": b})
    rows = {"a": a.flatten(0, 1)[obs.keep], "b": b.flatten(0, 1)[obs.keep]}
    assert torch.equal(net(obs)[0], net(rows)[0])


@pytest.mark.parametrize("side", [0, 2])
@pytest.mark.parametrize("several", [False, True])
def test_a_net_with_a_memory_goes_through_stretches_step_by_step(side: int, several: bool) -> None:
    net = build(RECURRENT, {"obs": (3,), "b": (2,)} if several else (3,), side=side)
    first = torch.tensor([[1, 1, 1], [0, 0, 1], [0, 1, 0], [1, 0, 0]], dtype=torch.bool)
    entries = {"obs": random(4, 3, 3), "hidden.net": random(4, 3, 5, seed=3), MASK: random(4, 3, 4, seed=4) > 0}
    entries |= {"b": random(4, 3, 2, seed=5)} if several else {}
    obs, sides = stretches(entries, 1, first), random(4, 3, 2, seed=6) if side else None
    state, expected = torch.zeros(3, 5), list[Tensor]()
    for k in range(4):
        state = torch.where(first[k].unsqueeze(-1), entries["hidden.net"][k], state)
        now = {key: value[k] for key, value in entries.items()} | {"hidden.net": state}
        outputs, hidden = net.step(now, None if sides is None else sides[k])
        state = hidden["hidden.net"]
        expected.append(outputs[0])
    logits, value = net(obs, None if sides is None else sides.flatten(0, 1)[obs.keep])
    torch.testing.assert_close(logits, torch.cat(expected)[obs.keep])
    assert torch.equal(logits == NEVER, ~entries[MASK].flatten(0, 1)[obs.keep])
    assert value.shape == (7, 1)


# steps ------------------------------------------------------------------------------------------------------------


def test_a_net_with_a_memory_names_what_it_remembers() -> None:
    net = build({**RECURRENT, "cell_type": "LSTM"}, name="critic")
    assert net.hidden == {"hidden.critic": 10}
    outputs, hidden = net.step({"obs": random(3, 3), "hidden.critic": torch.zeros(3, 10), "hidden.actor": random(3, 1)})
    assert [output.shape for output in outputs] == [(3, 4), (3, 1)]
    assert {entry: value.shape for entry, value in hidden.items()} == {"hidden.critic": (3, 10)}


def test_a_net_without_a_memory_remembers_nothing() -> None:
    net, x = build(), random(3, 3)
    assert net.hidden == {}
    for obs in (x, {"obs": x}, {"obs": x, "hidden.other": random(3, 2)}):
        outputs, hidden = net.step(obs)
        assert hidden == {}
        assert torch.equal(outputs[0], net(x)[0])


def test_rows_with_a_memory_go_on_from_it() -> None:
    net, x = build(RECURRENT), random(3, 3)
    fresh, later = ({"obs": x, "hidden.net": value} for value in (torch.zeros(3, 5), random(3, 5)))
    assert torch.equal(net(fresh)[0], net.step(fresh)[0][0])
    assert not torch.allclose(net(fresh)[0], net(later)[0])
