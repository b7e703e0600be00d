from __future__ import annotations

import pytest
import torch
from torch import nn

from slm_lab.agent.net.base import Head
from slm_lab.agent.net.batch_norm import BatchNorm1d
from slm_lab.agent.net.batch_renorm import BatchRenorm1d
from slm_lab.agent.net.mlp import MLPNet, MLPNetSpec
from slm_lab.lib.errors import SpecError
from slm_lab.spec.parse import parse
from slm_lab.types import Shape


def build(in_shape: Shape = (3,), **keys: object) -> MLPNet:
    spec = parse(MLPNetSpec, {"type": "MLPNet", "hid_layers": [5, 4], **keys}, "agent.net", [])
    return MLPNet(spec, in_shape, [Head(2), Head(1)])


def kinds(net: MLPNet) -> list[type[nn.Module]]:
    assert isinstance(net.body, nn.Sequential)
    return [type(layer) for layer in net.body]


def test_an_mlp_is_linear_and_activation_for_each_width_then_its_heads() -> None:
    net = build(hid_layers_activation="tanh")
    assert kinds(net) == [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh]
    assert [tuple(p.shape) for p in net.parameters()] == [(5, 3), (5,), (4, 5), (4,), (2, 4), (2,), (1, 4), (1,)]
    assert [out.shape for out in net(torch.zeros(7, 3))] == [(7, 2), (7, 1)]


def test_norms_come_after_each_linear_layer_and_batch_norm_wins() -> None:
    assert kinds(build(layer_norm=True)) == [nn.Linear, nn.LayerNorm, nn.ReLU] * 2
    assert kinds(build(layer_norm=True, batch_norm=True)) == [nn.Linear, BatchNorm1d, nn.ReLU] * 2


def test_hidden_layers_may_be_none() -> None:
    net = build(hid_layers=[])
    assert [out.shape for out in net(torch.zeros(7, 3))] == [(7, 2), (7, 1)]
    assert len(list(net.parameters())) == 4


def test_any_input_is_flattened_and_bytes_are_numbers() -> None:
    net = build(in_shape=(2, 3))
    image = torch.arange(12, dtype=torch.uint8).reshape(2, 2, 3)
    flat = build(in_shape=(6,))
    flat.load_state_dict(net.state_dict())
    for one, other in zip(net(image), flat(image.reshape(2, 6).float()), strict=True):
        assert torch.equal(one, other)


def test_batch_norm_normalises_by_the_batch_while_training() -> None:
    norm = BatchNorm1d(2)
    rows = torch.tensor([[0.0, 10.0], [2.0, 30.0]])
    # deviation 1 and 10: each column becomes -1, 1
    torch.testing.assert_close(norm(rows).detach(), torch.tensor([[-1.0, -1.0], [1.0, 1.0]]), rtol=1e-4, atol=1e-4)
    assert norm.running_mean is not None
    # momentum .1 of the means 1 and 20
    torch.testing.assert_close(norm.running_mean, torch.tensor([0.1, 2.0]))


def test_in_eval_mode_it_neither_needs_a_batch_nor_changes() -> None:
    net = build(batch_norm=True)
    net(torch.randn(32, 3, generator=torch.Generator().manual_seed(0)))
    net.eval()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with torch.inference_mode():
        alone = net(torch.ones(1, 3))
        among = net(torch.cat([torch.ones(1, 3), torch.zeros(3, 3)]))
    for one, other in zip(alone, among, strict=True):
        torch.testing.assert_close(one[0], other[0])
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


def test_a_last_minibatch_of_one_row_trains_too() -> None:
    net = build(batch_norm=True)
    policy, value = net(torch.ones(1, 3))
    gradients = torch.autograd.grad(policy.sum() + value.sum(), list(net.parameters()))
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def renorms(net: MLPNet) -> list[BatchRenorm1d]:
    return [part for part in net.modules() if isinstance(part, BatchRenorm1d)]


def test_batch_renorm_takes_the_input_and_each_activation() -> None:
    net = build(batch_renorm=True)
    assert kinds(net) == [BatchRenorm1d, *[nn.Linear, nn.ReLU, BatchRenorm1d] * 2]
    assert [len(norm.weight) for norm in renorms(net)] == [3, 5, 4]
    assert [out.shape for out in net(torch.zeros(7, 3))] == [(7, 2), (7, 1)]


def test_batch_renorm_takes_its_settings_or_none() -> None:
    net = build(batch_renorm={"warmup_steps": "5e3", "momentum": 0.1})
    assert [(norm.warmup_steps, norm.momentum, norm.r_max) for norm in renorms(net)] == [(5000, 0.1, 3.0)] * 3
    for off in (False, None):
        assert kinds(build(batch_renorm=off, batch_norm=True)) == [nn.Linear, BatchNorm1d, nn.ReLU] * 2


def test_one_training_pass_is_one_step_of_every_batch_renorm_and_evaluation_none() -> None:
    net = build(batch_renorm=True)
    net(torch.randn(8, 3, generator=torch.Generator().manual_seed(0)))
    net.eval()
    net(torch.ones(8, 3))
    assert [norm.steps.item() for norm in renorms(net)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"batch_norm": True}, "got True (bool); allowed: false with batch_norm, as a net has one kind of norm."),
        ({"layer_norm": True}, "got True (bool); allowed: false with layer_norm, as a net has one kind of norm."),
        ({"batch_renorm": 3}, "got 3 (int); allowed: true, false or a mapping of its settings."),
    ],
)
def test_a_batch_renorm_that_cannot_be_is_refused_in_words(keys: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError) as error:
        build(**{"batch_renorm": True, **keys})  # type: ignore[arg-type]
    assert str(error.value) == f"agent.net.batch_renorm: {message}"


def test_an_unknown_setting_of_batch_renorm_is_refused_with_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"^agent\.net\.batch_renorm\.r_maxx: unknown key. Did you mean 'r_max'\?.*\.$"):
        build(batch_renorm={"r_maxx": 2})


def test_unknown_keys_and_inert_ones() -> None:
    with pytest.raises(SpecError, match=r"agent\.net\.hid_layer: unknown key. Did you mean 'hid_layers'"):
        parse(MLPNetSpec, {"type": "MLPNet", "hid_layers": [5], "hid_layer": [1]}, "agent.net", [])
    notes = list[str]()
    parse(MLPNetSpec, {"type": "MLPNet", "hid_layers": [5], "normalize": True, "cuda_id": 0}, "agent.net", notes)
    assert [note.split(":")[0] for note in notes] == ["agent.net.normalize", "agent.net.cuda_id"]
