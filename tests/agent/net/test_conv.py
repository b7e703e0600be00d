from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from slm_lab.agent.net import net_class
from slm_lab.agent.net.base import Head, NetSpec
from slm_lab.agent.net.batch_norm import BatchNorm2d
from slm_lab.agent.net.conv import (
    ConvEncoder,
    ConvNet,
    ConvNetSpec,
    DuelingConvNet,
    DuelingConvNetSpec,
    image_shape,
)
from slm_lab.agent.net.dueling import DuelingMLPNetSpec
from slm_lab.agent.net.mlp import MLPNetSpec
from slm_lab.lib.errors import SpecError
from slm_lab.spec.parse import parse
from slm_lab.types import Shape

ATARI = [[32, 8, 4, 0, 1], [64, 4, 2, 0, 1], [64, 3, 1, 0, 1]]
SMALL = [[3, 3], [4, 2]]


def net_spec(**keys: object) -> ConvNetSpec:
    data = {"type": "ConvNet", "conv_hid_layers": SMALL, "fc_hid_layers": [6], **keys}
    return parse(ConvNetSpec, data, "agent.net", [])


def build(in_shape: Shape = (2, 7, 6), side: int = 0, **keys: object) -> ConvNet:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return ConvNet(net_spec(**keys), in_shape, [Head(2), Head(1)], side)


def dueling(**keys: object) -> DuelingConvNet:
    data = {"type": "DuelingConvNet", "conv_hid_layers": SMALL, "fc_hid_layers": [6], **keys}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return DuelingConvNet(parse(DuelingConvNetSpec, data, "agent.net", []), (2, 7, 6), [Head(5)])


def images(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def kinds(net: ConvNet) -> list[type[nn.Module]]:
    return [type(layer) for layer in net.encoder.layers]


def convs(net: ConvNet) -> list[nn.Conv2d]:
    return [layer for layer in net.encoder.layers if isinstance(layer, nn.Conv2d)]


def test_the_atari_net_has_its_known_shapes() -> None:
    net = build((4, 84, 84), conv_hid_layers=ATARI, fc_hid_layers=[512], batch_norm=False)
    # 84 -> (84 - 8) / 4 + 1 = 20 -> (20 - 4) / 2 + 1 = 9 -> 7, and 64 * 7 * 7 = 3136
    assert net.encoder.size == 3136
    weights = [tuple(p.shape) for p in net.parameters() if p.dim() > 1]
    assert sorted(weights) == [(1, 512), (2, 512), (32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 3136)]
    assert [out.shape for out in net(images(3, 4, 84, 84))] == [(3, 2), (3, 1)]


def test_a_convolution_and_two_linear_layers_by_hand() -> None:
    net = build((1, 2, 3), conv_hid_layers=[[1, 2]], fc_hid_layers=[1])
    image = torch.tensor([[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]])
    with torch.no_grad():
        convs(net)[0].weight.copy_(torch.tensor([[[[1.0, 0.0], [0.0, -2.0]]]]))
        convs(net)[0].bias.fill_(10.5)  # type: ignore[union-attr]
        for parameter, value in zip(net.body.parameters(), ([[2.0, 3.0]], [1.0]), strict=True):
            parameter.copy_(torch.tensor(value))
        for parameter, value in zip(net.heads[1].parameters(), ([[-1.0]], [0.25]), strict=True):
            parameter.copy_(torch.tensor(value))
    # 1 - 2 * 5 + 10.5 = 1.5 and 2 - 2 * 6 + 10.5 = 0.5; 2 * 1.5 + 3 * 0.5 + 1 = 5.5; 0.25 - 5.5
    assert net.encode(image).tolist() == [[1.5, 0.5]]
    assert net(image)[1].tolist() == [[-5.25]]


def test_flattened_features_are_ordered_by_channel_then_row_then_column() -> None:
    net = build((1, 2, 2), conv_hid_layers=[[2, 1]], fc_hid_layers=[])
    with torch.no_grad():
        convs(net)[0].weight.copy_(torch.tensor([1.0, 10.0]).view(2, 1, 1, 1))
        nn.init.zeros_(convs(net)[0].bias)  # type: ignore[arg-type]
    image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    assert net.encode(image).tolist() == [[1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0]]


def test_a_layer_is_channels_kernel_stride_padding_dilation() -> None:
    net = build((2, 9, 8), conv_hid_layers=[[3, [4, 3], [2, 1], [1, 0], [1, 2]]])
    conv = convs(net)[0]
    assert (conv.out_channels, conv.kernel_size, conv.stride) == (3, (4, 3), (2, 1))
    assert (conv.padding, conv.dilation) == ((1, 0), (1, 2))
    # height (9 + 2 - 4) // 2 + 1 = 4, width (8 - 5) // 1 + 1 = 4
    assert net.encoder.size == 3 * 4 * 4
    assert net.encode(images(5, 2, 9, 8)).shape == (5, 48)


def test_what_a_layer_leaves_out_is_as_torch_has_it() -> None:
    conv, torchs = convs(build(conv_hid_layers=[[3, 2]]))[0], nn.Conv2d(2, 3, 2)
    for name in ("kernel_size", "stride", "padding", "dilation"):
        assert vars(conv)[name] == vars(torchs)[name]


def test_a_spec_is_shown_as_it_is_written() -> None:
    layers = [[32, 8, 4, 0, 1], [64, [4, 3], 2, [0, 1], 1]]
    shown = net_spec(conv_hid_layers=[layers[0], ["6.4e1", [4, 3], 2, [0, 1]]]).model_dump(mode="json")
    assert shown["conv_hid_layers"] == layers
    assert (
        parse(ConvNetSpec, shown, "agent.net", []).conv_hid_layers == net_spec(conv_hid_layers=layers).conv_hid_layers
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_normalize_divides_by_255_and_leaves_the_images_as_they_are(dtype: torch.dtype) -> None:
    plain, scaled = build(), build(normalize=True)
    x = images(3, 2, 7, 6).to(dtype)
    before = x.clone()
    for got, expected in zip(scaled.eval()(x), plain.eval()(before.float() / 255), strict=True):
        torch.testing.assert_close(got, expected)
    assert torch.equal(x, before)


def test_without_normalize_bytes_are_numbers() -> None:
    net = build().eval()
    x = images(3, 2, 7, 6)
    assert torch.equal(net(x)[0], net(x.float())[0])


def test_the_features_are_those_of_torch_whatever_the_layout_in_memory() -> None:
    net = build(batch_norm=False)
    x = images(3, 2, 7, 6).float()
    first, second = convs(net)
    expected = second(first(x).relu()).relu().flatten(1)
    for layout in (torch.contiguous_format, torch.channels_last):
        torch.testing.assert_close(net.encode(x.contiguous(memory_format=layout)), expected)


def test_batch_norm_comes_after_each_activation_but_the_first() -> None:
    layers = [[3, 2], [4, 2], [5, 2]]
    net = build(conv_hid_layers=layers, hid_layers_activation="tanh")
    plain = [nn.Conv2d, nn.Tanh]
    assert kinds(net) == [*plain, *plain, BatchNorm2d, *plain, BatchNorm2d]
    assert [norm.num_features for norm in net.encoder.layers if isinstance(norm, BatchNorm2d)] == [4, 5]
    assert kinds(build(conv_hid_layers=layers, batch_norm=False)) == [nn.Conv2d, nn.ReLU] * 3
    assert [type(layer) for layer in net.body.children()] == [nn.Linear, nn.Tanh]


def test_batch_norm_is_the_default_but_for_dueling_nets() -> None:
    assert BatchNorm2d in kinds(build())
    assert BatchNorm2d not in kinds(dueling())
    assert BatchNorm2d in kinds(dueling(batch_norm=True))


def test_batch_norm_normalises_each_channel_by_the_batch() -> None:
    norm = BatchNorm2d(2)
    x = torch.tensor([[[[0.0]], [[10.0]]], [[[2.0]], [[30.0]]]])
    # deviation 1 and 10: each channel becomes -1, 1
    expected = torch.tensor([[-1.0, -1.0], [1.0, 1.0]]).view(2, 2, 1, 1)
    torch.testing.assert_close(norm(x).detach(), expected, rtol=1e-4, atol=1e-4)


def test_a_last_minibatch_of_one_row_trains_also_where_one_pixel_is_left() -> None:
    net = build((1, 4, 3), conv_hid_layers=[[3, 2], [4, [3, 2]]])
    assert net.encoder.size == 4
    policy, value = net(images(1, 1, 4, 3))
    gradients = torch.autograd.grad(policy.sum() + value.sum(), list(net.parameters()))
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize(("net", "side"), [(build(), 0), (build(side=3), 3), (dueling(batch_norm=True), 0)])
def test_gradients_reach_every_parameter(net: ConvNet, side: int) -> None:
    outputs = net(images(8, 2, 7, 6), torch.ones(8, side) if side else None)
    # one action alone: the mean of all action values has no gradient for advantages
    loss = torch.stack([out[:, 0].square().sum() for out in outputs]).sum()
    names, parameters = zip(*net.named_parameters(), strict=True)
    for name, gradient in zip(names, torch.autograd.grad(loss, parameters), strict=True):
        assert gradient.abs().sum() > 0, name


def test_side_numbers_join_after_the_convolutions() -> None:
    net = build(side=3, batch_norm=False)
    x, side = images(4, 2, 7, 6), torch.randn(4, 3, generator=torch.Generator().manual_seed(2))
    # 7 x 6 -> 5 x 4 -> 4 x 3, with 4 channels
    assert net.encoder.size == 48
    joined = torch.cat([net.encode(x), side], 1)
    assert joined.shape == (4, 51)
    assert torch.equal(net(x, side)[0], net.heads[0](net.body(joined)))


def test_linear_layers_may_be_none() -> None:
    net = build(fc_hid_layers=[])
    assert len(list(net.body.children())) == 0
    assert [tuple(head.weight.shape) for head in net.heads if isinstance(head, nn.Linear)] == [(2, 48), (1, 48)]


def test_an_init_fn_applies_to_convolutions_linear_layers_and_heads() -> None:
    net = build(init_fn="orthogonal_", hid_layers_activation="relu")
    layers = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert len(layers) == 5
    for layer in layers:
        rows = layer.weight.detach().flatten(1)  # fewer rows than columns, at right angles, of relu's gain sqrt 2
        torch.testing.assert_close(rows @ rows.T, 2 * torch.eye(len(rows)), rtol=1e-4, atol=1e-4)
        assert layer.bias is not None
        assert (layer.bias == 0).all()


def test_two_dims_are_an_image_of_one_channel() -> None:
    grey, one = build((7, 6)), build((1, 7, 6))
    one.load_state_dict(grey.state_dict())
    x = images(3, 7, 6)
    assert torch.equal(grey.eval()(x)[0], one.eval()(x.unsqueeze(1))[0])


@pytest.mark.parametrize(
    "shape", [(4, 84, 84), (3, 210, 160), (1, 84, 84), (3, 4, 4), (64, 2, 2), (3, 3, 3), (10, 8, 8)]
)
def test_channels_first_is_taken(shape: Shape) -> None:
    assert image_shape(shape) == shape


@pytest.mark.parametrize(
    ("shape", "first"),
    [
        ((84, 84, 3), (3, 84, 84)),
        ((210, 160, 3), (3, 210, 160)),
        ((84, 84, 1), (1, 84, 84)),
        ((84, 84, 12), (12, 84, 84)),  # four frames in colour
        ((10, 10, 7), (7, 10, 10)),
    ],
)
def test_channels_last_is_refused_with_what_is_taken(shape: Shape, first: Shape) -> None:
    with pytest.raises(SpecError) as error:
        build(shape)
    assert str(error.value) == (
        f"agent.net.type: got an observation of shape {shape}; convolutions take images with channels first, "
        "(channels, height, width), or (height, width) of one channel. "
        f"This looks like channels last: let the env give {first}."
    )


def test_a_kernel_that_does_not_fit_is_refused_with_what_comes_to_it() -> None:
    # 20 x 30 -> 18 x 28 -> 8 x 13: a kernel of 5 with gaps of 1 spans 9
    with pytest.raises(SpecError) as error:
        build((1, 20, 30), conv_hid_layers=[[2, 3], [2, 4, 2], [2, 5, 1, 0, 2]])
    assert str(error.value) == (
        "agent.net.conv_hid_layers[2]: its kernel 5 x 5 (padding 0 x 0, dilation 2 x 2) does not fit the 8 x 13 image "
        "(height x width) that comes to it; allowed: what spans at most 8 x 13, or fewer layers."
    )
    # with padding of 1 it spans no more than there is: 8 + 2 - 9 + 1 = 2 rows, 13 + 2 - 9 + 1 = 7 columns
    net = build((1, 20, 30), conv_hid_layers=[[2, 3], [2, 4, 2], [2, 5, 1, 1, 2]])
    assert net.encoder.size == 2 * 2 * 7


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([], "conv_hid_layers: got [] (list); allowed: at least one convolution, as MLPNet is the net without."),
        ([[32]], "conv_hid_layers.0: got [32] (list); allowed: [out_channels, kernel, stride, padding, dilation], "),
        ([32, 8], "conv_hid_layers.0: got 32 (int); allowed: [out_channels, kernel, "),
        ([[2, 3], [2, 3, 1, 0, 1, 1]], "conv_hid_layers.1: got [2, 3, 1, 0, 1, 1] (list); allowed: [out_channels, "),
        ([[0, 3]], "conv_hid_layers.0.0: got 0 (int); allowed: greater than or equal to 1."),
        ([[2, 0]], "conv_hid_layers.0.1.0: got 0 (int); allowed: greater than or equal to 1."),
        ([[2, [3, 3, 3]]], "conv_hid_layers.0.1: got [3, 3, 3] (list); allowed: a number, or [height, width]."),
        ([[2, 3, 1, -1]], "conv_hid_layers.0.3.0: got -1 (int); allowed: greater than or equal to 0."),
    ],
)
def test_layers_in_another_form_are_refused_with_the_form(layers: object, message: str) -> None:
    with pytest.raises(SpecError) as error:
        build(conv_hid_layers=layers)
    assert str(error.value).startswith(f"agent.net.{message}")


def test_an_encoder_stands_on_its_own() -> None:
    layers = net_spec(conv_hid_layers=[[3, 2], [4, 2]]).conv_hid_layers
    encoder = ConvEncoder(layers, (2, 5, 4), "tanh", batch_norm=True, normalize=True)
    assert encoder.size == 4 * 3 * 2
    assert encoder(images(6, 2, 5, 4)).shape == (6, 24)


def test_dueling_action_values_have_the_state_value_as_their_mean() -> None:
    net = dueling()
    x = images(7, 2, 7, 6)
    (q,) = net(x)
    features = net.features(x)
    value, advantage = net.heads[0](features), net.heads[1](features)
    assert (value.shape, q.shape) == ((7, 1), (7, 5))
    torch.testing.assert_close(q.mean(1, keepdim=True), value)
    torch.testing.assert_close(q - q[:, :1], advantage - advantage[:, :1])


def test_dueling_nets_refuse_what_they_cannot_give() -> None:
    with pytest.raises(SpecError, match=r"agent\.net\.out_layer_activation: got 'tanh' \(str\); allowed: null, "):
        dueling(out_layer_activation="tanh")
    spec = parse(DuelingConvNetSpec, {**net_spec().model_dump(), "type": "DuelingConvNet"}, "agent.net", [])
    with pytest.raises(SpecError, match=r"agent\.net\.type: DuelingConvNet .* 2 were asked for\."):
        DuelingConvNet(spec, (2, 7, 6), [Head(4), Head(1)])


@pytest.mark.parametrize(
    ("cls", "trunk"), [(ConvNet, ("MLPNet", MLPNetSpec)), (DuelingConvNet, ("DuelingMLPNet", DuelingMLPNetSpec))]
)
def test_its_parts_are_the_convolutions_and_the_linear_layers(
    cls: type[ConvNet], trunk: tuple[str, type[NetSpec]]
) -> None:
    optim = {"name": "RMSprop", "lr": 0.01, "alpha": 0.9}
    data = {"type": cls.__name__, "conv_hid_layers": SMALL, "fc_hid_layers": [6, 5], "normalize": True}
    spec = parse(cls.Spec, {**data, "init_fn": "orthogonal_", "optim_spec": optim}, "agent.net", [])
    images, rest = cls.parts(spec)  # type: ignore[arg-type]
    assert isinstance(images, ConvNetSpec)
    assert (images.type, images.fc_hid_layers, images.normalize) == ("ConvNet", [], True)
    assert images.conv_hid_layers == net_spec().conv_hid_layers
    assert rest == parse(
        trunk[1],
        {"type": trunk[0], "hid_layers": [6, 5], "init_fn": "orthogonal_", "optim_spec": optim},
        "agent.net",
        [],
    )


def test_specs_find_them_by_name() -> None:
    assert net_class("ConvNet", "agent.net.type") is ConvNet
    assert net_class("DuelingConvNet", "agent.net.type") is DuelingConvNet


def test_other_observations_are_refused_with_a_way_out() -> None:
    with pytest.raises(SpecError, match=r"agent\.net\.type: got .* shape \(4,\); .* For vectors take MLPNet"):
        build((4,))
    with pytest.raises(SpecError, match=r"shape \(4, 3, 84, 84\); .* Let the env join 2 of its dims as channels\."):
        build((4, 3, 84, 84))
