from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from slm_lab.agent.net import net_class
from slm_lab.agent.net.base import Head
from slm_lab.agent.net.recurrent import RecurrentNet, RecurrentNetSpec
from slm_lab.lib.errors import SpecError
from slm_lab.spec.parse import parse
from slm_lab.types import Shape, Stretch

STEPS, STRETCHES, WIDTH = 6, 4, 3
# one row for each step: where a stretch takes up another memory, beside its first step
RESETS = [[1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 1]]
NONE = [[1] * STRETCHES, *[[0] * STRETCHES] * (STEPS - 1)]
ALL = [[1] * STRETCHES] * STEPS
TORCHS = {"RNN": nn.RNN, "GRU": nn.GRU, "LSTM": nn.LSTM}
KINDS = [(cell, layers) for cell in TORCHS for layers in (1, 2)]


def net_spec(**keys: object) -> RecurrentNetSpec:
    data = {"type": "RecurrentNet", "rnn_hidden_size": 5, "seq_len": 4, **keys}
    return parse(RecurrentNetSpec, data, "agent.net", [])


def build(in_shape: Shape = (WIDTH,), side: int = 0, **keys: object) -> RecurrentNet:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return RecurrentNet(net_spec(**keys), in_shape, [Head(2), Head(1)], side)


class Lesson(NamedTuple):
    """Stretches [K, S, ...]: observations, stored memories, and where they are taken up."""

    x: Tensor
    hidden: Tensor
    first: Tensor


def stretches(net: RecurrentNet, resets: list[list[int]] = RESETS) -> Lesson:
    """Random numbers; memories that are not to be taken up are NaN."""
    rng = torch.Generator().manual_seed(1)
    first = torch.tensor(resets, dtype=torch.bool)
    x = torch.randn(*first.shape, WIDTH, generator=rng)
    hidden = torch.randn(*first.shape, net.hidden, generator=rng)
    return Lesson(x, hidden.where(first.unsqueeze(-1), math.nan), first)


def unrolled(net: RecurrentNet, lesson: Lesson, burn_in: int = 0) -> Tensor:
    """Features [K, S, size]."""
    features = net.unroll(lesson.x.flatten(0, 1), lesson.hidden, lesson.first, burn_in)
    assert features.shape == (lesson.first.numel(), net.size)
    return features.view(*lesson.first.shape, -1)


def looped(net: RecurrentNet, lesson: Lesson, burn_in: int = 0) -> list[Tensor]:
    """Outputs [K - burn_in, S, dim] of one step after another."""
    state, outputs = lesson.hidden[0], list[list[Tensor]]()
    for k in range(len(lesson.x)):
        state = torch.where(lesson.first[k].unsqueeze(-1), lesson.hidden[k], state)
        with torch.set_grad_enabled(k >= burn_in):
            output, state = net.step(lesson.x[k], state)
        outputs.append(output)
    return [torch.stack(head) for head in zip(*outputs[burn_in:], strict=True)]


# stretches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cell", "layers"), KINDS)
@pytest.mark.parametrize("burn_in", [0, 1, 3, 5])
@pytest.mark.parametrize("resets", [RESETS, NONE, ALL])
def test_a_stretch_in_one_call_is_step_after_step(
    cell: str, layers: int, burn_in: int, resets: list[list[int]]
) -> None:
    net = build(cell_type=cell, rnn_num_layers=layers, fc_hid_layers=[4], hid_layers_activation="tanh")
    lesson = stretches(net, resets)
    features = unrolled(net, lesson, burn_in)
    expected = looped(net, lesson, burn_in)
    outputs = [head.view(STEPS - burn_in, STRETCHES, -1) for head in net.outputs(features[burn_in:].flatten(0, 1))]
    for ours, theirs in zip(outputs, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    losses = [torch.stack([head.square().sum() for head in heads]).sum() for heads in (outputs, expected)]
    names, parameters = zip(*net.named_parameters(), strict=True)
    gradients = [torch.autograd.grad(loss, parameters) for loss in losses]
    for name, ours, theirs in zip(names, *gradients, strict=True):
        assert theirs.abs().max() > 1e-4, name
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("cell", TORCHS)
@pytest.mark.parametrize("resets", [RESETS, NONE])
def test_no_gradient_reaches_back_through_burn_in_or_a_reset(cell: str, resets: list[list[int]]) -> None:
    net = build(cell_type=cell)
    lesson = stretches(net, resets)
    lesson.x.requires_grad_()
    (gradient,) = torch.autograd.grad(unrolled(net, lesson, 2)[STEPS - 1].sum(), lesson.x)
    reached = gradient.abs().sum(-1) > 0  # [K, S]
    for stretch in range(STRETCHES):
        begin = max([k for k in range(STEPS) if lesson.first[k, stretch]] + [2])  # of what the last step remembers
        assert reached[:, stretch].tolist() == [k >= begin for k in range(STEPS)]


@pytest.mark.parametrize("burn_in", [1, 4])
def test_features_of_burn_in_are_zeros(burn_in: int) -> None:
    net = build()
    features = unrolled(net, stretches(net), burn_in)
    assert not features[:burn_in].any()
    assert (features[burn_in:].abs().sum(-1) > 0).all()


def test_what_is_seen_during_burn_in_is_remembered() -> None:
    net = build()
    lesson = stretches(net, NONE)
    other = lesson._replace(x=torch.cat([lesson.x[:2] + 1, lesson.x[2:]]))
    ours, theirs = unrolled(net, lesson, 2), unrolled(net, other, 2)
    assert ((ours[2] - theirs[2]).abs().amax(-1) > 1e-3).all()


@pytest.mark.parametrize(("cell", "layers"), KINDS)
@pytest.mark.parametrize("burn_in", [0, 1, 3])
def test_after_the_end_of_an_episode_a_net_is_as_at_its_start(cell: str, layers: int, burn_in: int) -> None:
    net = build(cell_type=cell, rnn_num_layers=layers)
    lesson = stretches(net, [[1], [0], [0], [1], [0], [0]])
    lesson.hidden[3] = 0  # what is stored with the first step of an episode
    fresh = Lesson(lesson.x[3:], torch.zeros(3, 1, net.hidden), lesson.first[3:])
    torch.testing.assert_close(unrolled(net, lesson, burn_in)[3:], unrolled(net, fresh))


def test_stretches_do_not_see_each_other() -> None:
    net = build(cell_type="LSTM")
    lesson = stretches(net)
    whole = unrolled(net, lesson, 2)
    for stretch in range(STRETCHES):
        alone = Lesson(*(part[:, stretch : stretch + 1] for part in lesson))
        torch.testing.assert_close(unrolled(net, alone, 2), whole[:, stretch : stretch + 1])


# steps ------------------------------------------------------------------------------------------------------------


def test_a_step_by_hand() -> None:
    net = build((1,), cell_type="RNN", rnn_hidden_size=1)
    with torch.no_grad():
        for parameter, value in zip(net.rnn.parameters(), (0.5, 2.0, 0.25, 0.05), strict=True):
            parameter.fill_(value)
        for head in net.heads:
            assert isinstance(head, nn.Linear)
            head.weight.fill_(3)
            head.bias.fill_(1)
    outputs, hidden = net.step(torch.tensor([[1.0], [0.0]]), torch.tensor([[0.1], [0.0]]))
    # .5 x + 2 h + .25 + .05: 1 and .3
    after = [math.tanh(1.0), math.tanh(0.3)]
    assert hidden.flatten().tolist() == pytest.approx(after)
    assert outputs[1].flatten().tolist() == pytest.approx([3 * after[0] + 1, 3 * after[1] + 1])


@pytest.mark.parametrize(("cell", "layers"), KINDS)
@pytest.mark.parametrize("at_once", [False, True])
def test_steps_are_those_of_torchs_own_layers(cell: str, layers: int, at_once: bool) -> None:
    net = build(cell_type=cell, rnn_num_layers=layers)
    torchs = TORCHS[cell](WIDTH, 5, layers)
    torchs.load_state_dict(net.rnn.state_dict())
    lesson = stretches(net, NONE)
    x, start = lesson.x.requires_grad_(), lesson.hidden[0].requires_grad_()
    # layer by layer; all that is shown before all that is kept back, where there are both
    by_layer = start.view(STRETCHES, -1, 5).transpose(0, 1)
    expected, last = torchs(x, tuple(by_layer.chunk(2)) if cell == "LSTM" else by_layer)
    state, features = start, list[Tensor]()
    if at_once:
        features.append(net.unroll(x.flatten(0, 1), start.expand(STEPS, -1, -1), lesson.first, 0))
    else:
        for k in range(STEPS):
            outputs, state = net.step(x[k], state)
            torch.testing.assert_close(outputs, net.outputs(expected[k]))
            features.append(state[:, (layers - 1) * 5 : layers * 5])  # what the last layer shows
        rows = torch.cat(last) if cell == "LSTM" else last
        torch.testing.assert_close(state, rows.transpose(0, 1).flatten(1))
    torch.testing.assert_close(torch.cat(features), expected.flatten(0, 1))
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2))
    ours = torch.autograd.grad((torch.cat(features) * weight.flatten(0, 1)).sum(), [x, start, *net.rnn.parameters()])
    theirs = torch.autograd.grad((expected * weight).sum(), [x, start, *torchs.parameters()])
    assert all(gradient.any() for gradient in theirs)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("cell", "layers", "hidden"), [("RNN", 1, 5), ("GRU", 2, 10), ("LSTM", 1, 10), ("LSTM", 2, 20)]
)
def test_what_is_remembered_is_one_row_of_numbers(cell: str, layers: int, hidden: int) -> None:
    net = build(cell_type=cell, rnn_num_layers=layers)
    assert net.hidden == hidden
    outputs, after = net.step(torch.zeros(7, WIDTH), torch.zeros(7, hidden))
    assert [output.shape for output in outputs] == [(7, 2), (7, 1)]
    assert after.shape == (7, hidden)


def test_linear_layers_come_before_the_recurrent_ones() -> None:
    net = build((2, 3), fc_hid_layers=[8, 4], hid_layers_activation="tanh")
    assert isinstance(net.body, nn.Sequential)
    assert [type(layer) for layer in net.body] == [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh]
    assert net.rnn.input_size == 4
    outputs, _ = net.step(torch.zeros(7, 2, 3, dtype=torch.uint8), torch.zeros(7, 5))  # flattened, bytes as numbers
    assert [output.shape for output in outputs] == [(7, 2), (7, 1)]


def test_side_numbers_join_what_is_remembered() -> None:
    net, plain = build(side=2, hid_layers_activation="tanh"), build(hid_layers_activation="tanh")
    assert net.join is not None
    assert plain.join is None
    joint = net.join[0]
    assert isinstance(joint, nn.Linear)
    assert joint.weight.shape == (5, 5 + 2)
    x, hidden, side = torch.ones(4, WIDTH), torch.zeros(4, 5), torch.arange(8.0).view(4, 2)
    outputs, after = net.step(x, hidden, side)
    features = torch.tanh(joint(torch.cat([after, side], -1)))  # a GRU shows all that it remembers
    for head, output in zip(net.heads, outputs, strict=True):
        torch.testing.assert_close(output, head(features))
    assert torch.equal(net.step(x, hidden, side + 1)[1], after)  # what is done then is not remembered


# weights ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cell", "layers"), KINDS)
def test_an_init_fn_applies_to_every_layer_and_biases_are_0(cell: str, layers: int) -> None:
    keys: dict[str, Any] = {"cell_type": cell, "rnn_num_layers": layers, "fc_hid_layers": [4]}
    net = build(side=2, init_fn="orthogonal_", hid_layers_activation="relu", **keys)
    recurrent = set(net.rnn.parameters())
    assert len(recurrent) == 4 * layers
    for name, parameter in net.named_parameters():
        values = parameter.detach()
        if values.dim() == 1:
            assert not values.any(), name
            continue
        square = values @ values.T if len(values) <= values.shape[1] else values.T @ values
        scale = 1.0 if parameter in recurrent else 2.0  # gains 1 and sqrt 2, squared
        torch.testing.assert_close(square, scale * torch.eye(len(square)), rtol=1e-4, atol=1e-4, msg=name)


def test_without_an_init_fn_weights_are_torchs_own() -> None:
    biases = [parameter for name, parameter in build().rnn.named_parameters() if name.startswith("bias")]
    assert all(bias.any() for bias in biases)


# keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "stretch"),
    [
        ({"seq_len": 8}, Stretch(8, 4)),
        ({"seq_len": 5}, Stretch(5, 2)),
        ({"seq_len": 1}, Stretch(1, 0)),
        ({"seq_len": 8, "burn_in": 0}, Stretch(8, 0)),
        ({"seq_len": 8, "burn_in": 20}, Stretch(8, 20)),
    ],
)
def test_burn_in_is_half_the_length_unless_said(keys: dict[str, Any], stretch: Stretch) -> None:
    assert net_spec(**keys).stretch == stretch


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"bidirectional": True},
            "bidirectional: got True (bool); allowed: false, as an agent that acts knows nothing of the steps to come.",
        ),
        ({"cell_type": "gru"}, "cell_type: got 'gru' (str); allowed: 'RNN', 'LSTM' or 'GRU'."),
        ({"rnn_hidden_size": 0}, "rnn_hidden_size: got 0 (int); allowed: greater than or equal to 1."),
        ({"rnn_num_layers": 0}, "rnn_num_layers: got 0 (int); allowed: greater than or equal to 1."),
        ({"seq_len": 0}, "seq_len: got 0 (int); allowed: greater than or equal to 1."),
        ({"burn_in": -1}, "burn_in: got -1 (int); allowed: greater than or equal to 0."),
    ],
)
def test_what_cannot_be_is_refused_in_words(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        net_spec(**keys)
    assert str(error.value) == f"agent.net.{message}"


def test_a_net_that_looks_one_way_may_say_so() -> None:
    assert build(bidirectional=False).rnn.bidirectional is False


@pytest.mark.parametrize("key", ["rnn_hidden_size", "seq_len"])
def test_widths_and_lengths_have_no_default(key: str) -> None:
    data = {"type": "RecurrentNet", "rnn_hidden_size": 5, "seq_len": 4}
    del data[key]
    with pytest.raises(SpecError, match=rf"^agent\.net\.{key}: missing key \(required\)\.$"):
        parse(RecurrentNetSpec, data, "agent.net", [])


def test_unknown_keys_and_inert_ones() -> None:
    with pytest.raises(SpecError, match=r"agent\.net\.rnn_hidden_sizes: unknown key. Did you mean 'rnn_hidden_size'"):
        net_spec(rnn_hidden_sizes=4)
    notes = list[str]()
    data = {"type": "RecurrentNet", "rnn_hidden_size": 5, "seq_len": 4, "normalize": True}
    parse(RecurrentNetSpec, data, "agent.net", notes)
    assert [note.split(":")[0] for note in notes] == ["agent.net.normalize"]


def test_specs_find_it_by_name() -> None:
    assert net_class("RecurrentNet", "agent.net.type") is RecurrentNet
