from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from slm_lab.agent.net import make_net
from slm_lab.agent.net.base import Head
from slm_lab.agent.net.batch_renorm import BatchRenorm1d
from slm_lab.agent.net.torcharc import TorchArcNet, TorchArcNetSpec
from slm_lab.agent.plan import split_by_net
from slm_lab.lib.errors import SpecError
from slm_lab.spec.parse import parse
from slm_lab.spec.text import read

torch.set_num_threads(1)

SPECS = Path(__file__).resolve().parents[3] / "../shared/specs"
FILES = sorted(
    path for path in SPECS.rglob("*") if path.suffix in (".json", ".yaml") and "TorchArcNet" in path.read_text()
)

WIDE: dict[str, Any] = {"LazyLinear": {"out_features": 5}}
TANH: dict[str, Any] = {"Tanh": None}
CONV: dict[str, Any] = {"LazyConv2d": {"out_channels": 2, "kernel_size": 3}}
IMAGE = (1, 4, 4)


def row(*layers: dict[str, Any]) -> dict[str, Any]:
    """An arc of one row of layers."""
    return {
        "modules": {"body": {"Sequential": list(layers)}},
        "graph": {"input": "x", "modules": {"body": ["x"]}, "output": "body"},
    }


MLP = row(WIDE, TANH, {"LazyLinear": {"out_features": 4}}, TANH)
JOINED: dict[str, Any] = {
    "modules": {
        "eye": {"Sequential": [CONV, {"ReLU": None}, {"Flatten": None}]},
        "both": {"MergeConcat": None},
        "body": {"Sequential": [WIDE, {"ReLU": None}]},
    },
    "graph": {
        "input": ["x", "action"],
        "modules": {"eye": ["x"], "both": [["eye", "action"]], "body": ["both"]},
        "output": "body",
    },
}
"""An image, then an action beside what was seen in it."""


def spec_of(notes: list[str] | None = None, **keys: Any) -> TorchArcNetSpec:
    return parse(TorchArcNetSpec, {"type": "TorchArcNet", **keys}, "agent.net", [] if notes is None else notes)


def build(arc: dict[str, Any], in_shape: tuple[int, ...] = (3,), side: int = 0, **keys: Any) -> TorchArcNet:
    return TorchArcNet(spec_of(arc=arc, **keys), in_shape, [Head(2), Head(1)], side)


def message(*args: Any, **keys: Any) -> str:
    with pytest.raises(SpecError) as error:
        build(*args, **keys)
    return str(error.value)


def shapes(net: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(parameter.shape) for parameter in net.parameters()]


def test_heads_stand_on_what_the_arc_gives() -> None:
    net = build(MLP)
    assert shapes(net) == [(5, 3), (5,), (4, 5), (4,), (2, 4), (2,), (1, 4), (1,)]
    assert [out.shape for out in net(torch.zeros(7, 3))] == [(7, 2), (7, 1)]


def test_the_same_layers_give_what_an_mlp_gives() -> None:
    net = build(MLP)
    mlp = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))
    for ours, theirs in zip(net.parameters(), mlp.parameters(), strict=False):
        theirs.data.copy_(ours.data)
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(net(x)[0], mlp(x))


def test_a_target_net_may_be_copied_from_it() -> None:
    net = build(row({"LazyWeightNormLinear": {"out_features": 4}}, {"LazyBatchRenorm1d": None}))
    copied, x = deepcopy(net), torch.ones(2, 3)
    with torch.no_grad():
        before = copied.eval()(x)[0].clone()
        for parameter in net.parameters():
            parameter += 1
    assert torch.equal(copied(x)[0], before)


def test_gradients_reach_every_parameter() -> None:
    net = build(JOINED, IMAGE, side=3)
    outputs = net(torch.randn(6, *IMAGE), torch.randn(6, 3))
    gradients = torch.autograd.grad(sum(out.sum() for out in outputs), list(net.parameters()))
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


@pytest.mark.parametrize(("normalize", "expected"), [(False, 255.0), (True, 1.0)])
def test_bytes_are_numbers_that_may_be_divided_by_255(normalize: bool, expected: float) -> None:
    net = build(row({"Identity": None}), IMAGE, normalize=normalize)
    features = net.features(torch.full((2, *IMAGE), 255, dtype=torch.uint8))
    assert torch.equal(features, torch.full((2, 16), expected))


def test_more_dims_are_flattened_and_the_first_output_counts() -> None:
    split = {"ForkSplit": {"split_size_or_sections": [1, 2]}}
    assert shapes(build(row(split)))[0] == (2, 1)
    assert shapes(build(row(CONV), IMAGE))[2] == (2, 2 * 2 * 2)
    arc = {
        "modules": {"a": WIDE, "b": {"LazyLinear": {"out_features": 9}}},
        "graph": {"input": "x", "modules": {"a": ["x"], "b": ["x"]}, "output": ["b", "a"]},
    }
    assert build(arc).size == 9
    assert build({**arc, "graph": {**arc["graph"], "output": {"features": "a", "more": "b"}}}).size == 5


@pytest.mark.parametrize(
    ("init_fn", "activation", "gain"), [("orthogonal_", "relu", 2**0.5), ("orthogonal_", "tanh", 5 / 3)]
)
def test_init_fn_comes_after_lazy_layers_have_their_shapes(init_fn: str, activation: str, gain: float) -> None:
    net = build(row({"LazyLinear": {"out_features": 2}}), init_fn=init_fn, hid_layers_activation=activation)
    weight, bias = list(net.body.parameters())
    torch.testing.assert_close(weight @ weight.T, gain**2 * torch.eye(2))
    assert bias.tolist() == [0.0, 0.0]


def test_relu_chooses_the_gain_unless_told_otherwise() -> None:
    net = build(row({"LazyLinear": {"out_features": 2}}, TANH), init_fn="orthogonal_")
    weight = next(net.body.parameters())
    torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(2))


def test_an_action_joins_a_flat_observation() -> None:
    net = build(row({"Identity": None}), side=2)
    x, action = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[4.0, 5.0]])
    assert net.features(x, action).tolist() == [[1.0, 2.0, 3.0, 4.0, 5.0]]
    assert shapes(net)[0] == (2, 5)


def test_an_action_goes_where_the_graph_takes_it() -> None:
    net = build(JOINED, IMAGE, side=3)
    # two channels of 2 x 2 beside three numbers
    assert shapes(net.body)[2] == (5, 8 + 3)
    names = [*JOINED["graph"]["input"]]
    swapped = {**JOINED, "graph": {**JOINED["graph"], "input": names[::-1]}}
    same = build(swapped, IMAGE, side=3)
    same.load_state_dict(net.state_dict())
    x, action = torch.randn(2, *IMAGE), torch.randn(2, 3)
    assert torch.equal(net(x, action)[0], same(x, action)[0])
    assert not torch.equal(net(x, action)[0], net(x, action + 1)[0])


def test_a_flat_observation_may_have_an_action_input_too() -> None:
    arc = {
        "modules": {"deep": WIDE, "both": {"MergeConcat": None}},
        "graph": {"input": ["x", "action"], "modules": {"deep": ["x"], "both": [["deep", "action"]]}, "output": "both"},
    }
    assert build(arc, side=2).size == 5 + 2


def test_an_image_and_an_action_need_a_graph_that_joins_them() -> None:
    assert message(row(CONV), IMAGE, side=3) == (
        "agent.net.arc.graph.input: an observation of shape [1, 4, 4] cannot be joined with the 3 numbers of an "
        "action. Name `action` as a second input and join it where the graph can, or take ConvNet, which does so."
    )


def test_an_action_that_nobody_gives_is_refused() -> None:
    assert message(JOINED, IMAGE).startswith("agent.net.arc.graph.input: nothing gives `action`: this net values no ac")


@pytest.mark.parametrize("names", [["x", "y"], ["x", "y", "action"], ["action"]])
def test_one_input_is_for_the_observation(names: list[str]) -> None:
    arc = {"modules": {"a": {"MergeConcat": None}}, "graph": {"input": names, "modules": {"a": names}, "output": "a"}}
    assert message(arc, side=1) == (
        f"agent.net.arc.graph.input: got {', '.join(names)}; "
        "allowed: one for the observation, and `action` for an action to be valued."
    )


@pytest.mark.parametrize(
    ("layer", "shape"),
    [({"Flatten": {"start_dim": 0}}, [6]), ({"Reduce": {"name": "mean", "dim": 0, "keepdim": True}}, [1, 3])],
)
def test_rows_must_stay_apart(layer: dict[str, Any], shape: list[int]) -> None:
    assert message(row(layer)) == (
        f"agent.net.arc.graph.output: 2 rows come out as {shape}; allowed: one row of features each."
    )


def test_what_does_not_fit_the_observation_is_told_with_its_place() -> None:
    said = message(row(WIDE, CONV))
    assert said.startswith("agent.net.arc.modules.body.Sequential[1]: LazyConv2d(")
    assert "does not take [2, 5] (2 rows): Expected 3D (unbatched) or 4D (batched) input" in said


def test_entries_of_an_observation_are_encoded_before_the_arc() -> None:
    net = make_net(spec_of(arc=MLP), {"near": (2,), "far": (4,)}, [Head(2)], "actor")
    assert net({"near": torch.zeros(5, 2), "far": torch.zeros(5, 4)})[0].shape == (5, 2)


def test_an_arc_that_cannot_be_built_is_refused_before_anything_is() -> None:
    state = torch.get_rng_state()
    spec_of(arc=row({"Linear": {"in_features": 3, "out_features": 4}}))
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(
        SpecError, match=r"^agent\.net\.arc\.modules\.body\.Sequential\[1\]: unknown layer 'Tanhh'\. Did"
    ):
        spec_of(arc=row(WIDE, {"Tanhh": None}))
    with pytest.raises(SpecError, match=r"^agent\.net\.arc\.graph: missing key \(required\)\.$"):
        spec_of(arc={"modules": {"body": WIDE}})


def test_norms_of_other_nets_are_ignored_with_a_note() -> None:
    notes = list[str]()
    spec_of(notes, arc=MLP, batch_norm=True, layer_norm=False)
    assert notes == [
        "agent.net.batch_norm: norms are layers of the arc; ignored.",
        "agent.net.layer_norm: norms are layers of the arc; ignored.",
    ]


@pytest.mark.parametrize("name", ["body.json", "body.yaml"])
def test_an_arc_may_be_a_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_text(json.dumps(MLP))  # which is YAML too
    monkeypatch.chdir(tmp_path)
    spec = spec_of(arc_file=name)
    assert shapes(TorchArcNet(spec, (3,), [Head(2)])) == [(5, 3), (5,), (4, 5), (4,), (2, 4), (2,)]


def test_what_is_wrong_with_a_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "body.yaml"
    with pytest.raises(
        SpecError, match=rf"^agent\.net\.arc_file: {path}: cannot be read: No such file or directory\.$"
    ):
        spec_of(arc_file=str(path))
    path.write_text(json.dumps(row({"Rellu": None})))
    with pytest.raises(
        SpecError, match=r"^agent\.net\.arc_file\.modules\.body\.Sequential\[0\]: unknown layer 'Rellu'"
    ):
        spec_of(arc_file=str(path))
    path.write_text("modules: {}")
    with pytest.raises(SpecError, match=r"^agent\.net\.arc_file\.graph: missing key"):
        spec_of(arc_file=str(path))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "got None (NoneType); allowed: a file, where there is no `arc`."),
        (
            {"arc": MLP, "arc_file": "body.yaml"},
            "got 'body.yaml' (str); allowed: null beside `arc`; "
            "where it holds for one net alone, `actor_arc` or `critic_arc: null`.",
        ),
    ],
)
def test_an_arc_is_inline_or_a_file(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as error:
        spec_of(**keys)
    assert str(error.value) == f"agent.net.arc_file: {said}"


def test_actor_and_critic_may_have_arcs_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "critic.json"
    path.write_text(json.dumps(row({"LazyLinear": {"out_features": 9}})))
    sections: list[dict[str, Any]] = [
        {"actor_arc": MLP, "critic_arc": row({"LazyLinear": {"out_features": 9}})},
        {"arc": MLP, "critic_arc": row({"LazyLinear": {"out_features": 9}})},
        {"actor_arc": MLP, "critic_arc_file": str(path)},
        {"arc": MLP, "critic_arc": None, "critic_arc_file": str(path)},
    ]
    for section in sections:
        actor, critic = split_by_net({"type": "TorchArcNet", **section})
        sizes = [TorchArcNet(spec_of(**keys), (3,), []).size for keys in (actor, critic)]
        assert sizes == [4, 9]


def test_a_parsed_spec_reads_back_as_itself() -> None:
    spec = spec_of(arc=JOINED, normalize=True)
    dumped = json.loads(json.dumps(spec.model_dump(mode="json")))
    assert parse(TorchArcNetSpec, dumped, "agent.net", []) == spec


def sections(entry: Any) -> list[dict[str, Any]]:
    """Net sections within a spec file that hold an arc."""
    if isinstance(entry, dict):
        own = [entry] if entry.get("type") == "TorchArcNet" else []
        return own + [found for value in entry.values() for found in sections(value)]
    return []


def takes_images(arc: dict[str, Any]) -> bool:
    return "Conv2d" in json.dumps(arc)


@pytest.mark.skipif(not FILES, reason="the public specs are not here")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_public_arc_builds_and_learns(path: Path) -> None:
    found = sections(read(path))
    assert found
    for section in found:
        actor, critic = split_by_net(section)
        for keys in (actor, critic):
            spec = parse(TorchArcNetSpec, keys, "agent.net", [])
            shape = (4, 84, 84) if takes_images(keys["arc"]) else (11,)
            net = TorchArcNet(spec, shape, [Head(3)])
            net(torch.rand(2, *shape))[0].square().sum().backward()
            assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in net.parameters())
            norms = [part for part in net.modules() if isinstance(part, BatchRenorm1d)]
            assert len(norms) == json.dumps(keys["arc"]).count("BatchRenorm1d")
            assert all(norm.steps.item() == 1 for norm in norms)
