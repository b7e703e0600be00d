from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from slm_lab.agent.net import net_class
from slm_lab.agent.net.base import Head
from slm_lab.agent.net.hydra import HydraMLPNet, HydraMLPNetSpec
from slm_lab.lib.errors import SpecError
from slm_lab.spec.parse import parse
from slm_lab.types import Shape

ENTRIES: dict[str, Shape] = {"image": (2, 3), "speed": (1,)}
HEADS = [Head(2), Head(1)]


def net_spec(hid_layers: object, **keys: object) -> HydraMLPNetSpec:
    return parse(HydraMLPNetSpec, {"type": "HydraMLPNet", "hid_layers": hid_layers, **keys}, "agent.net", [])


def build(
    hid_layers: object,
    in_shape: Shape | dict[str, Shape] = ENTRIES,
    heads: list[Head] = HEADS,
    side: int = 0,
    **keys: object,
) -> HydraMLPNet:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return HydraMLPNet(net_spec(hid_layers, **keys), in_shape, heads, side)


def obs(rows: int) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(1)
    image = torch.randint(0, 256, (rows, 2, 3), dtype=torch.uint8, generator=rng)
    return {"image": image, "speed": torch.randn(rows, 1, generator=rng)}


def widths(layers: nn.Module) -> list[tuple[int, int]]:
    return [(part.in_features, part.out_features) for part in layers.modules() if isinstance(part, nn.Linear)]


def fill(layers: nn.Module, *values: Any) -> None:
    with torch.no_grad():
        for parameter, value in zip(layers.parameters(), values, strict=True):
            parameter.copy_(torch.tensor(value))


def test_each_entry_has_a_head_and_each_output_a_tail() -> None:
    net = build([[[8, 5], [4]], [7], [[6], []]], hid_layers_activation="tanh")
    assert [widths(head) for head in net.inputs] == [[(6, 8), (8, 5)], [(1, 4)]]
    assert widths(net.body) == [(9, 7)]
    assert [widths(tail) for tail in net.tails] == [[(7, 6)], []]
    assert [widths(head) for head in net.heads] == [[(6, 2)], [(7, 1)]]
    assert [type(layer) for layer in net.inputs[0].children()] == [nn.Linear, nn.Tanh] * 2
    assert [type(layer) for layer in net.tails[0].children()] == [nn.Linear, nn.Tanh]
    assert [out.shape for out in net(obs(5))] == [(5, 2), (5, 1)]


def test_a_small_net_by_hand() -> None:
    net = build([[[1], []], [1], [[1], []]], {"a": (2,), "b": (1,)}, [Head(1), Head(1)], side=1)
    fill(net.inputs, [[1.0, 2.0]], [0.5])
    fill(net.body, [[1.0, 10.0, 100.0]], [-1.0])
    fill(net.tails, [[2.0]], [-100.0])
    fill(net.heads, [[3.0]], [1.0], [[-1.0]], [0.0])
    x, side = (
        {"b": torch.tensor([[2.0], [2.0]]), "a": torch.tensor([[1.0, 1.0], [0.0, -9.0]])},
        torch.tensor([[1.0], [0.0]]),
    )
    # heads: a gives relu(1 + 2 + 0.5) = 3.5 and relu(-18 + 0.5) = 0, b itself, 2
    # body: 3.5 + 20 + 100 - 1 = 122.5 and 0 + 20 + 0 - 1 = 19
    # first output: 3 * relu(2 * 122.5 - 100) + 1 = 436 and 3 * relu(38 - 100) + 1 = 1; second: -122.5 and -19
    first, second = net(x, side)
    assert first.tolist() == [[436.0], [1.0]]
    assert second.tolist() == [[-122.5], [-19.0]]


@pytest.mark.parametrize("form", [[[4], [7], [6]], [[[4]], [7], [[6]]], [[[4], [4]], [7], [[6], [6]]]])
def test_one_list_is_taken_for_all(form: object) -> None:
    net = build(form)
    assert [widths(head) for head in net.inputs] == [[(6, 4)], [(1, 4)]]
    assert [widths(tail) for tail in net.tails] == [[(7, 6)], [(7, 6)]]
    # alike, but not the same
    assert len({id(part) for part in net.modules() if isinstance(part, nn.Linear)}) == 2 + 1 + 2 + 2


def test_every_part_may_be_empty() -> None:
    net = build([[], [], []])
    assert widths(net) == [(7, 2), (7, 1)]
    x = obs(3)
    flat = torch.cat([x["image"].flatten(1).float(), x["speed"]], 1)
    assert torch.equal(net.encode(x), flat)
    assert torch.equal(net(x)[0], net.heads[0](flat))


def test_one_array_has_one_head() -> None:
    net = build([[[4]], [7], []], (2, 3))
    assert [widths(head) for head in net.inputs] == [[(6, 4)]]
    image = obs(3)["image"]
    assert torch.equal(net(image)[0], build([[4], [7], []], (6,))(image.flatten(1).float())[0])


def test_entries_go_by_name_not_by_the_order_they_come_in() -> None:
    net, x = build([[4], [7], []]), obs(3)
    turned = {"speed": x["speed"], "other": torch.zeros(3), "image": x["image"]}
    assert torch.equal(net(turned)[0], net(x)[0])


def test_side_numbers_join_what_the_heads_give() -> None:
    net, x, side = build([[4], [7], [6]], side=3), obs(5), torch.ones(5, 3)
    assert widths(net.body) == [(4 + 4 + 3, 7)]
    joined = torch.cat([net.encode(x), side], 1)
    assert torch.equal(net(x, side)[1], net.heads[1](net.tails[1](net.body(joined))))


def test_gradients_reach_every_parameter() -> None:
    net = build([[[8, 5], [4]], [7], [[6], [3]]], hid_layers_activation="tanh", side=2)
    outputs = net({key: value / 255 for key, value in obs(5).items()}, torch.ones(5, 2))
    loss = torch.stack([out.square().sum() for out in outputs]).sum()
    names, parameters = zip(*net.named_parameters(), strict=True)
    for name, gradient in zip(names, torch.autograd.grad(loss, parameters), strict=True):
        assert gradient.abs().sum() > 0, name


def test_an_init_fn_applies_to_every_layer_and_a_gain_to_its_output_alone() -> None:
    net = build([[1], [2], [2]], heads=[Head(2, gain=0.1), Head(1)], init_fn="orthogonal_")
    layers = [part for part in net.modules() if isinstance(part, nn.Linear)]
    assert len(layers) == 7
    for layer in layers:
        rows = layer.weight.detach()
        scale = 0.01 if layer is net.heads[0] else 2.0  # gains 0.1 and sqrt 2, squared
        torch.testing.assert_close(rows @ rows.T, scale * torch.eye(len(rows)), rtol=1e-4, atol=1e-4)
        assert (layer.bias == 0).all()


def test_an_output_activation_comes_after_the_tail_and_the_output() -> None:
    net = build([[4], [7], [6]], out_layer_activation=["tanh", None])
    assert [type(part) for part in net.heads[0].children()] == [nn.Linear, nn.Tanh]
    assert isinstance(net.heads[1], nn.Linear)


@pytest.mark.parametrize(
    ("hid_layers", "message"),
    [
        (
            [[[4], [4], [4]], [7], []],
            "agent.net.hid_layers[0]: got 3 lists of widths for 2 observation entries image, speed; "
            "allowed: 2 lists, or one for all.",
        ),
        (
            [[4], [7], [[6], [6], [6]]],
            "agent.net.hid_layers[2]: got 3 lists of widths for 2 outputs, of widths 2, 1; "
            "allowed: 2 lists, or one for all.",
        ),
    ],
)
def test_a_number_of_lists_that_does_not_fit_is_refused(hid_layers: object, message: str) -> None:
    with pytest.raises(SpecError) as error:
        build(hid_layers)
    assert str(error.value) == message


def test_one_array_with_two_heads_is_refused() -> None:
    with pytest.raises(SpecError, match=r"hid_layers\[0\]: got 2 lists of widths for 1 observation entries obs; "):
        build([[[4], [4]], [7], []], (3,))


@pytest.mark.parametrize(
    ("hid_layers", "message"),
    [
        ([64, 64], "hid_layers: got [64, 64] (list); allowed: [heads, body, tails], each a list of widths; "),
        ([[4], [7]], "hid_layers: got [[4], [7]] (list); allowed: [heads, body, tails], "),
        ([[4], 7, []], "hid_layers.1: got 7 (int); allowed: a valid list."),
        ([4, [7], []], "hid_layers.0: got 4 (int); allowed: a list of widths, or a list of such lists."),
        ([[[4], [0]], [7], []], "hid_layers.0.1.0: got 0 (int); allowed: greater than or equal to 1."),
    ],
)
def test_layers_in_another_form_are_refused_with_the_form(hid_layers: object, message: str) -> None:
    with pytest.raises(SpecError) as error:
        build(hid_layers)
    assert str(error.value).startswith(f"agent.net.{message}")


def test_a_spec_it_shows_is_one_it_takes() -> None:
    for form in ([[4], [7], []], [[[4], [5, 6]], [], [[1], []]]):
        spec = net_spec(form)
        assert parse(HydraMLPNetSpec, spec.model_dump(mode="json"), "agent.net", []) == spec


def test_specs_find_it_by_name() -> None:
    assert net_class("HydraMLPNet", "agent.net.type") is HydraMLPNet
