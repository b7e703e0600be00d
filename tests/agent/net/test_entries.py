from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from slm_lab.agent.net import make_net, net_class
from slm_lab.agent.net.base import Head, Net
from slm_lab.agent.net.conv import ConvNet
from slm_lab.agent.net.dueling import DuelingMLPNet
from slm_lab.agent.net.entries import NOT_ITS_OWN, Encoders
from slm_lab.agent.net.hydra import HydraMLPNet
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.agent.net.obs_net import ObsNet
from slm_lab.agent.net.recurrent import RecurrentNet
from slm_lab.lib.errors import SpecError
from slm_lab.spec.parse import parse
from slm_lab.types import MASK, ObsShape, Shape

MLP: dict[str, Any] = {"type": "MLPNet", "hid_layers": [5]}
CONV: dict[str, Any] = {"type": "ConvNet", "conv_hid_layers": [[3, 3], [4, 2]], "fc_hid_layers": [6, 7]}
RECURRENT: dict[str, Any] = {"type": "RecurrentNet", "rnn_hidden_size": 5, "seq_len": 4}
SHAPES: dict[str, Shape] = {"camera": (1, 6, 6), "speed": (2,)}


def build(data: dict[str, Any], obs_shape: ObsShape = SHAPES, heads: int = 1, **keys: Any) -> ObsNet:
    spec = parse(net_class(data["type"], "agent.net.type").Spec, {**data, **keys}, "agent.net", [])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make_net(spec, obs_shape, [Head(2)] * heads)


def encoders(net: ObsNet) -> Encoders:
    assert net.encoders is not None
    return net.encoders


def encoder(net: ObsNet, key: str) -> Net:
    found = dict(zip(encoders(net).keys, encoders(net).nets, strict=True))[key]
    assert isinstance(found, Net)
    return found


def obs(rows: int = 4) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(1)
    camera = torch.randint(0, 256, (rows, 1, 6, 6), dtype=torch.uint8, generator=rng)
    return {"camera": camera, "speed": torch.randn(rows, 2, generator=rng)}


def linear(net: nn.Module) -> list[tuple[int, int]]:
    return [(part.in_features, part.out_features) for part in net.modules() if isinstance(part, nn.Linear)]


def convs(net: nn.Module) -> list[tuple[int, Any, Any]]:
    found = [part for part in net.modules() if isinstance(part, nn.Conv2d)]
    return [(part.out_channels, part.kernel_size[0], part.stride[0]) for part in found]


# by shape ---------------------------------------------------------------------------------------------------------


def test_an_image_gets_convolutions_and_anything_else_a_linear_layer() -> None:
    net = build(MLP, {"camera": (1, 6, 6), "speed": (2,), "grid": (3, 4), "deep": (2, 1, 1, 2)})
    assert [type(part) for part in encoders(net).nets] == [ConvNet, MLPNet, MLPNet, MLPNet]
    assert convs(encoder(net, "camera")) == [(16, 3, 1), (32, 3, 1)]
    assert linear(encoder(net, "camera")) == [(32 * 2 * 2, 128)]
    assert linear(encoder(net, "speed")) == [(2, 64)]
    assert linear(encoder(net, "grid")) == [(12, 64)]
    assert linear(encoder(net, "deep")) == [(4, 64)]
    assert encoders(net).size == 128 + 3 * 64
    assert linear(net.net) == [(128 + 3 * 64, 5), (5, 2)]


@pytest.mark.parametrize(
    ("shape", "large"), [((4, 84, 84), True), ((1, 36, 36), True), ((3, 35, 84), False), ((3, 84, 35), False)]
)
def test_large_images_get_larger_steps(shape: Shape, large: bool) -> None:
    found = convs(encoder(build(MLP, {"camera": shape, "speed": (2,)}), "camera"))
    assert found == ([(32, 8, 4), (64, 4, 2), (64, 3, 1)] if large else [(16, 3, 1), (32, 3, 1)])


def test_what_encoders_give_is_joined_in_the_order_of_the_entries() -> None:
    net, x = build(MLP), obs()
    joined = torch.cat(
        [encoder(net, "camera").features(x["camera"] / 255), encoder(net, "speed").features(x["speed"])], 1
    )
    turned = {"speed": x["speed"], "other": torch.zeros(4), "camera": x["camera"]}
    assert torch.equal(encoders(net)(turned), joined)
    assert torch.equal(net(turned)[0], net.net(joined)[0])


def test_encoders_take_activation_and_initialisation_of_the_net() -> None:
    net = build(MLP, hid_layers_activation="tanh", init_fn="orthogonal_")
    for key in SHAPES:
        parts = list(encoder(net, key).modules())
        assert any(isinstance(part, nn.Tanh) for part in parts)
        assert not any(isinstance(part, nn.ReLU) for part in parts)
        layers = [part for part in parts if isinstance(part, nn.Linear | nn.Conv2d)]
        assert all(layer.bias is not None and not layer.bias.any() for layer in layers)
    weight = next(part.weight for part in encoder(net, "speed").modules() if isinstance(part, nn.Linear)).detach()
    # columns at right angles, with the gain of tanh, 5/3
    torch.testing.assert_close(weight.T @ weight, 25 / 9 * torch.eye(2))


def test_one_array_needs_no_encoder() -> None:
    for shape in ((3,), {"obs": (3,)}, {"obs": (3,), MASK: (2,)}):
        net = build(MLP, shape)
        assert net.encoders is None
        assert linear(net.net) == [(3, 5), (5, 2)]


def test_a_single_entry_goes_to_the_net_itself() -> None:
    net = build(MLP, {"speed": (2,)})
    assert net.encoders is None
    assert net({"speed": torch.zeros(4, 2)})[0].shape == (4, 2)


def test_a_net_looks_at_the_entries_it_names_and_no_others() -> None:
    net = build(MLP, entries=["speed"])
    x = {"camera": torch.zeros(4, 1, 6, 6), "speed": torch.zeros(4, 2)}
    out = net(x)[0]
    assert torch.equal(net({**x, "camera": torch.ones(4, 1, 6, 6)})[0], out)
    assert not torch.equal(net({**x, "speed": torch.ones(4, 2)})[0], out)
    with pytest.raises(SpecError, match=r"agent\.net\.entries: .* no entry 'sped'\. Did you mean 'speed'\?"):
        build(MLP, entries=["sped"])


def test_entries_may_have_any_name() -> None:
    net = build(MLP, {"left.eye": (2,), "type": (1,), "": (1,)})
    x = {"left.eye": torch.zeros(4, 2), "type": torch.zeros(4, 1), "": torch.zeros(4, 1)}
    assert net(x)[0].shape == (4, 2)


def test_gradients_reach_every_encoder() -> None:
    net = build(MLP, hid_layers_activation="tanh")
    names, parameters = zip(*net.named_parameters(), strict=True)
    for name, gradient in zip(names, torch.autograd.grad(net(obs())[0].square().sum(), parameters), strict=True):
        assert gradient.abs().sum() > 0, name


# bytes ------------------------------------------------------------------------------------------------------------


def test_bytes_are_divided_by_255_for_encoders_that_nobody_chose() -> None:
    net, x = build(MLP), obs()
    shares = {**x, "camera": x["camera"] / 255}
    torch.testing.assert_close(net(x)[0], net(shares)[0])  # numbers that are no bytes stay as they are
    assert not torch.allclose(net({**x, "camera": x["camera"].float()})[0], net(x)[0])


def test_an_encoder_that_was_chosen_says_itself_whether_it_divides() -> None:
    chosen = {"type": "ConvNet", "conv_hid_layers": [[3, 3]], "fc_hid_layers": [4], "batch_norm": False}
    x = obs()
    for normalize in (False, True):
        net = build(MLP, encoders={"camera": {**chosen, "normalize": normalize}})
        seen = encoder(net, "camera").features(x["camera"])
        plain = build(MLP, encoders={"camera": {**chosen, "normalize": False}})
        scale = 255 if normalize else 1
        torch.testing.assert_close(seen, encoder(plain, "camera").features(x["camera"] / scale))
        assert torch.equal(encoders(net)(x)[:, :4], seen)


@pytest.mark.parametrize("normalize", [False, True])
def test_a_conv_nets_own_layers_divide_as_it_says(normalize: bool) -> None:
    net, x = build(CONV, batch_norm=False, normalize=normalize), obs()
    plain = build(CONV, batch_norm=False)
    images = x["camera"] / 255 if normalize else x["camera"].float()
    torch.testing.assert_close(net(x)[0], plain({**x, "camera": images})[0])


# nets -------------------------------------------------------------------------------------------------------------


def test_a_conv_net_has_its_convolutions_for_every_image_and_its_linear_layers_for_all() -> None:
    net = build(CONV, {"left": (1, 6, 6), "speed": (2,), "right": (2, 7, 6)})
    assert [type(part) for part in encoders(net).nets] == [ConvNet, MLPNet, ConvNet]
    assert convs(encoder(net, "left")) == convs(encoder(net, "right")) == [(3, 3, 1), (4, 2, 1)]
    assert linear(encoder(net, "left")) == []
    assert isinstance(net.net, MLPNet)
    # 4 channels of 3 x 3 and of 4 x 3
    assert linear(net.net) == [(36 + 64 + 48, 6), (6, 7), (7, 2)]


def test_a_dueling_conv_net_stays_dueling() -> None:
    net = build({**CONV, "type": "DuelingConvNet"})
    assert isinstance(net.net, DuelingMLPNet)
    assert convs(encoder(net, "camera")) == [(3, 3, 1), (4, 2, 1)]
    assert net(obs())[0].shape == (4, 2)


def test_a_conv_net_on_one_image_is_whole() -> None:
    net = build(CONV, (1, 6, 6))
    assert net.encoders is None
    assert isinstance(net.net, ConvNet)


def test_a_hydra_takes_entries_itself() -> None:
    net, x = build({"type": "HydraMLPNet", "hid_layers": [[[8], [4]], [7], []]}), obs()
    assert net.encoders is None
    assert isinstance(net.net, HydraMLPNet)
    assert [linear(part) for part in net.net.inputs] == [[(36, 8)], [(2, 4)]]
    more = {"hidden.q1": torch.zeros(4, 3), MASK: torch.ones(4, 2, dtype=torch.bool), **x}
    assert torch.equal(net(more)[0], net.net(x)[0])


def test_a_recurrent_net_gets_convolutions_for_images() -> None:
    net = build(RECURRENT, (1, 6, 6))
    assert convs(encoder(net, "obs")) == [(16, 3, 1), (32, 3, 1)]
    assert isinstance(net.net, RecurrentNet)
    assert net.net.rnn.input_size == 128
    x = {"obs": obs()["camera"], "hidden.net": torch.zeros(4, 5)}
    outputs, hidden = net.step(x)
    assert outputs[0].shape == (4, 2)
    torch.testing.assert_close(outputs[0], net.step({**x, "obs": x["obs"] / 255})[0][0])
    assert hidden["hidden.net"].any(1).all()


def test_a_recurrent_net_remembers_what_encoders_give() -> None:
    net = build(RECURRENT)
    assert isinstance(net.net, RecurrentNet)
    assert net.net.rnn.input_size == 128 + 64
    bare = build(RECURRENT, (3,))
    assert bare.encoders is None
    assert isinstance(bare.net, RecurrentNet)
    assert bare.net.rnn.input_size == 3


# given ------------------------------------------------------------------------------------------------------------


def test_encoders_that_are_given_take_the_place_of_those_by_shape() -> None:
    given = {"camera": {"type": "MLPNet", "hid_layers": [9, 8], "hid_layers_activation": "selu"}}
    net = build(MLP, encoders=given, hid_layers_activation="tanh")
    assert linear(encoder(net, "camera")) == [(36, 9), (9, 8)]
    assert sum(isinstance(part, nn.SELU) for part in encoder(net, "camera").modules()) == 2
    assert linear(encoder(net, "speed")) == [(2, 64)]
    assert linear(net.net) == [(8 + 64, 5), (5, 2)]


def test_a_given_encoder_takes_activation_and_initialisation_of_the_net_unless_it_says_others() -> None:
    given = {"speed": {"type": "MLPNet", "hid_layers": [3]}}
    net = build(MLP, encoders=given, hid_layers_activation="tanh", init_fn="zeros_")
    assert any(isinstance(part, nn.Tanh) for part in encoder(net, "speed").modules())
    assert not any(parameter.any() for parameter in encoder(net, "speed").parameters())
    net = build(MLP, encoders={"speed": {**given["speed"], "init_fn": "ones_"}}, init_fn="zeros_")
    assert next(iter(encoder(net, "speed").parameters())).tolist() == [[1, 1]] * 3


def test_one_array_may_have_an_encoder_too() -> None:
    net = build(MLP, (3,), encoders={"obs": {"type": "MLPNet", "hid_layers": [4]}})
    assert linear(encoder(net, "obs")) == [(3, 4)]
    x = torch.ones(2, 3)
    assert torch.equal(net(x)[0], net({"obs": x})[0])


@pytest.mark.parametrize(
    ("data", "given", "message"),
    [
        (
            MLP,
            {"camra": {"type": "MLPNet", "hid_layers": []}},
            "camra: the observation has no such entry. Did you mean 'camera'? Known: camera, speed.",
        ),
        (
            MLP,
            {MASK: {"type": "MLPNet", "hid_layers": []}},
            "action_mask: the observation has no such entry. Known: camera, speed.",
        ),
        (MLP, {"speed": {"type": "MLPnet"}}, "speed.type: unknown net 'MLPnet'. Did you mean 'MLPNet'? Known: "),
        (MLP, {"speed": {"hid_layers": [4]}}, "speed.type: unknown net None. Known: "),
        (
            MLP,
            {"speed": {"type": "MLPNet", "hid_layer": [4]}},
            "speed.hid_layers: missing key (required).\n"
            "agent.net.encoders.speed.hid_layer: unknown key. Did you mean 'hid_layers'?",
        ),
        (
            MLP,
            {"speed": RECURRENT},
            "speed.type: got 'RecurrentNet'; allowed: a net without a memory; "
            "it can be agent.net itself, over what encoders give.",
        ),
    ],
)
def test_encoders_that_cannot_be_are_refused(data: dict[str, Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        build(data, {**SHAPES, MASK: (2,)}, encoders=given)
    assert str(error.value).startswith(f"agent.net.encoders.{message}")


@pytest.mark.parametrize("key", sorted(NOT_ITS_OWN))
def test_keys_that_only_a_whole_net_has_are_refused(key: str) -> None:
    given = {"speed": {"type": "MLPNet", "hid_layers": [4], key: None}}
    with pytest.raises(SpecError) as error:
        build(MLP, encoders=given)
    said = f"agent.net.encoders.speed.{key}: an encoder has none of its own; it is a key of agent.net."
    assert str(error.value) == said


@pytest.mark.parametrize("shape", [SHAPES, (3,)])
def test_a_hydra_has_no_encoders(shape: ObsShape) -> None:
    given = {"speed": {"type": "MLPNet", "hid_layers": [4]}}
    with pytest.raises(SpecError) as error:
        build({"type": "HydraMLPNet", "hid_layers": [[8], [7], []]}, shape, encoders=given)
    said = "agent.net.encoders: HydraMLPNet has layers of its own for each entry; allowed: none."
    assert str(error.value) == said
