from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from slm_lab.agent.net.arc import Arc, build, settle
from slm_lab.agent.net.batch_norm import BatchNorm1d
from slm_lab.agent.net.batch_renorm import BatchRenorm1d
from slm_lab.lib.errors import SpecError

torch.set_num_threads(1)

MODULES = "agent.net.arc.modules"
GRAPH = "agent.net.arc.graph"
PAIR = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def row(*layers: dict[str, Any]) -> dict[str, Any]:
    """An arc of one row of layers, from x."""
    return one({"Sequential": list(layers)})


def one(module: dict[str, Any]) -> dict[str, Any]:
    """An arc of one module, from x."""
    return {"modules": {"body": module}, "graph": {"input": "x", "modules": {"body": ["x"]}, "output": "body"}}


def graph(modules: dict[str, Any], joined: dict[str, Any], output: Any, inputs: Any = "x") -> dict[str, Any]:
    return {"modules": modules, "graph": {"input": inputs, "modules": joined, "output": output}}


def settled(arc: dict[str, Any], *shape: int) -> Arc:
    """An arc of one input with its shapes."""
    built = build(arc)
    settle(built, {"x": shape})
    return built


def layers_of(arc: Arc) -> list[nn.Module]:
    body = arc.blocks[0]
    assert isinstance(body, nn.Sequential)
    return list(body)


def message(arc: dict[str, Any], *shape: int) -> str:
    """What is said of an arc that cannot be; with a shape, of one that does not fit it."""
    with pytest.raises(SpecError) as error:
        settled(arc, *shape) if shape else build(arc)
    return str(error.value)


def fill(module: nn.Module, value: float) -> None:
    for parameter in module.parameters():
        nn.init.constant_(parameter, value)


def test_a_row_of_layers_is_what_torch_makes_of_the_same_layers() -> None:
    arc = settled(
        row({"Linear": {"in_features": 3, "out_features": 4}}, {"Tanh": None}, {"LazyLinear": {"out_features": 2}}), 3
    )
    same = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    same.load_state_dict({name.removeprefix("blocks.0."): value for name, value in arc.state_dict().items()})
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(arc(x=x), same(x))


def test_lazy_layers_get_their_shapes_and_are_plain_layers_then() -> None:
    convolution = {"LazyConv2d": {"out_channels": 4, "kernel_size": 3, "stride": 2}}
    arc = settled(row(convolution, {"ReLU": None}, {"Flatten": {}}, {"LazyLinear": {"out_features": 6}}), 2, 9, 7)
    # (9 - 3) // 2 + 1 = 4 by (7 - 3) // 2 + 1 = 3
    assert [type(layer) for layer in layers_of(arc)] == [nn.Conv2d, nn.ReLU, nn.Flatten, nn.Linear]
    assert [tuple(p.shape) for p in arc.parameters()] == [(4, 2, 3, 3), (4,), (6, 4 * 4 * 3), (6,)]
    assert all(p.requires_grad for p in arc.parameters())
    assert all(part.training for part in arc.modules())


def test_finding_shapes_leaves_running_statistics_alone() -> None:
    norms = [{"LazyBatchRenorm1d": {"momentum": 0.5}}, {"LazyBatchNorm1d": None}, {"LazyBatchNorm2d": {}}]
    for norm, shape in zip(norms, [(3,), (3,), (3, 2, 2)], strict=True):
        [layer] = layers_of(settled(row(norm), *shape))
        assert isinstance(layer, BatchRenorm1d | BatchNorm1d | nn.BatchNorm2d)
        assert torch.equal(layer.running_mean, torch.zeros(3))  # type: ignore[arg-type]
        assert torch.equal(layer.running_var, torch.ones(3))  # type: ignore[arg-type]


def test_a_layer_may_be_a_module_of_its_own() -> None:
    arc = settled(one({"LazyWeightNormLinear": {"out_features": 4}}), 3)
    assert isinstance(arc.blocks[0], nn.Linear)
    assert arc(x=torch.zeros(5, 3)).shape == (5, 4)


def test_rows_may_hold_rows() -> None:
    inner = {"Sequential": [{"LazyLinear": {"out_features": 4}}, {"ReLU": None}]}
    arc = settled(row(inner, {"LazyLinear": {"out_features": 2}}), 3)
    assert [tuple(p.shape) for p in arc.parameters()] == [(4, 3), (4,), (2, 4), (2,)]


def test_a_compact_block_is_the_row_it_stands_for() -> None:
    compact = {
        "prelayer": [{"LazyBatchNorm2d": None}],
        "layer": {"type": "LazyConv2d", "keys": ["out_channels", "kernel_size"], "args": [[4, 3], [5, 2]]},
        "postlayer": [{"ReLU": None}, {"Dropout": {"p": 0.1}}],
    }

    def written_out(channels: int, kernel: int) -> list[dict[str, Any]]:
        convolution = {"LazyConv2d": {"out_channels": channels, "kernel_size": kernel}}
        return [{"LazyBatchNorm2d": None}, convolution, {"ReLU": None}, {"Dropout": {"p": 0.1}}]

    arcs = []
    for arc in (one({"compact": compact}), row(*written_out(4, 3), *written_out(5, 2))):
        torch.manual_seed(0)
        arcs.append(settled(arc, 1, 8, 8).eval())
    short, long = arcs
    assert [repr(layer) for layer in layers_of(short)] == [repr(layer) for layer in layers_of(long)]
    assert len(layers_of(short)) == 8
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    assert torch.equal(short(x=x), long(x=x))


def test_a_compact_block_of_one_key_takes_plain_values() -> None:
    layer = {"type": "LazyLinear", "keys": ["out_features"], "args": [8, [4]]}
    arc = settled(one({"compact": {"layer": layer, "postlayer": [{"SiLU": None}]}}), 3)
    assert [type(part) for part in layers_of(arc)] == [nn.Linear, nn.SiLU] * 2
    assert [tuple(p.shape) for p in arc.parameters()] == [(8, 3), (8,), (4, 8), (4,)]


def test_a_module_used_again_has_the_same_parameters() -> None:
    joined = {"eye~left": ["left"], "eye~right": ["right"], "both": [["eye~left", "eye~right"]]}
    modules = {"eye": {"LazyLinear": {"out_features": 2}}, "both": {"MergeConcat": None}}
    arc = build(graph(modules, joined, "both", ["left", "right"]))
    settle(arc, {"left": (3,), "right": (3,)})
    assert [tuple(p.shape) for p in arc.parameters()] == [(2, 3), (2,)]
    fill(arc, 1.0)
    # 1 + 1 + 1 + 1 of ones, 0 + 0 + 0 + 1 of zeros
    out = arc(left=torch.ones(1, 3), right=torch.zeros(1, 3))
    assert out.tolist() == [[4.0, 4.0, 1.0, 1.0]]
    out.sum().backward()
    assert arc.blocks[0].bias.grad.tolist() == [2.0, 2.0]  # type: ignore[union-attr]


def test_modules_may_have_any_name() -> None:
    modules = {name: {"LazyLinear": {"out_features": 2}} for name in ("float", "a.b", "items")}
    arc = settled(graph(modules, {"float": ["x"], "a.b": ["float"], "items": ["a.b"]}, "items"), 3)
    assert arc(x=torch.zeros(5, 3)).shape == (5, 2)
    assert len(arc.state_dict()) == 6


def test_the_order_in_the_file_does_not_matter() -> None:
    modules = {"first": {"LazyLinear": {"out_features": 2}}, "last": {"LazyLinear": {"out_features": 4}}}
    arc = settled(graph(modules, {"last": ["first"], "first": ["x"]}, "last"), 3)
    assert [tuple(p.shape) for p in arc.parameters()] == [(2, 3), (2,), (4, 2), (4,)]


def test_the_output_is_a_tensor_a_tuple_or_a_dict() -> None:
    modules = {"all": {"Identity": None}, "half": {"Narrow": {"dim": 1, "start": 0, "length": 1}}}
    joined: dict[str, Any] = {"half": ["all"], "all": "x"}
    half, pair, named = (build(graph(modules, joined, o)) for o in ("half", ["half", "all"], {"a": "all", "b": "half"}))
    assert half(x=PAIR).tolist() == [[1.0], [3.0]]
    out = pair(x=PAIR)
    assert isinstance(out, tuple)
    assert [part.shape for part in out] == [(2, 1), (2, 2)]
    assert {key: part.shape for key, part in named(x=PAIR).items()} == {"a": (2, 2), "b": (2, 1)}
    assert [part.shape for part in settle(pair, {"x": (7,)})] == [(2, 1), (2, 7)]


@pytest.mark.parametrize(
    ("merge", "expected"),
    [
        ({"MergeConcat": None}, [[1, 2, 10, 20], [3, 4, 30, 40]]),
        ({"MergeConcat": {"dim": 0}}, [[1, 2], [3, 4], [10, 20], [30, 40]]),
        ({"MergeStack": None}, [[[1, 2], [10, 20]], [[3, 4], [30, 40]]]),
        ({"MergeSum": None}, [[11, 22], [33, 44]]),
        ({"MergeProd": None}, [[10, 40], [90, 160]]),
        ({"MergeMean": None}, [[5.5, 11], [16.5, 22]]),
    ],
)
def test_merges_make_one_of_several(merge: dict[str, Any], expected: list[Any]) -> None:
    for given in ([["a", "b"]], ["a", "b"]):
        arc = build(graph({"both": merge}, {"both": given}, "both", ["a", "b"]))
        assert arc(a=PAIR, b=10 * PAIR).tolist() == expected


def test_products_merge_two() -> None:
    dot = build(graph({"both": {"MergeDot": None}}, {"both": ["a", "b"]}, "both", ["a", "b"]))
    assert dot(a=PAIR, b=PAIR).tolist() == [1 + 4, 9 + 16]
    bmm = build(graph({"both": {"MergeBMM": None}}, {"both": {"input": "a", "mat2": "b"}}, "both", ["a", "b"]))
    assert bmm(a=PAIR[None], b=PAIR[None]).tolist() == [[[7, 10], [15, 22]]]


@pytest.mark.parametrize("dims", [0, 2])
def test_a_conditioner_scales_and_shifts_each_feature(dims: int) -> None:
    film = {"MergeFiLM": {"feature_dim": 2, "conditioner_dim": 1}}
    joined = {"both": {"conditioner": "state", "feature": "image"}}
    arc = build(graph({"both": film}, joined, "both", ["image", "state"]))
    layer = arc.blocks[0]
    fill(layer, 0.0)
    with torch.no_grad():
        layer.gamma.weight.copy_(torch.tensor([[1.0], [2.0]]))  # type: ignore[union-attr, operator]
        layer.beta.bias.copy_(torch.tensor([0.5, -0.5]))  # type: ignore[union-attr, operator]
    # of a state of 3: the first feature times 3 plus .5, the second times 6 minus .5
    image = PAIR.view(2, 2, *[1] * dims).expand(2, 2, *[4] * dims)
    out = arc(image=image, state=torch.full((2, 1), 3.0))
    expected = torch.tensor([[3.5, 11.5], [9.5, 23.5]]).view(2, 2, *[1] * dims).expand_as(image)
    assert torch.equal(out, expected)


@pytest.mark.parametrize(
    ("fork", "parts"),
    [
        ({"ForkChunk": None}, [[0, 1, 2], [3, 4]]),
        ({"ForkChunk": {"chunks": 3}}, [[0, 1], [2, 3], [4]]),
        ({"ForkSplit": {"split_size_or_sections": 2}}, [[0, 1], [2, 3], [4]]),
        ({"ForkSplit": {"split_size_or_sections": [1, 4]}}, [[0], [1, 2, 3, 4]]),
    ],
)
def test_forks_make_several_of_one(fork: dict[str, Any], parts: list[list[float]]) -> None:
    x = torch.arange(5.0)[None]
    assert [part.tolist() for part in build(one(fork))(x=x)] == [[part] for part in parts]
    modules = {"fork": fork, "last": {"Get": {"key": -1}}}
    assert build(graph(modules, {"fork": ["x"], "last": ["fork"]}, "last"))(x=x).tolist() == [parts[-1]]


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ({"Narrow": {"dim": 1, "start": 1, "length": 1}}, [[2], [4]]),
        ({"IndexSelect": {"dim": 1, "indices": [1, 0, 1]}}, [[2, 1, 2], [4, 3, 4]]),
        ({"Reduce": {"name": "mean", "dim": 1}}, [1.5, 3.5]),
        ({"Reduce": {"name": "sum", "dim": [1], "keepdim": True}}, [[3], [7]]),
        ({"TorchFn": {"name": "clamp", "max": "2.5"}}, [[1, 2], [2.5, 2.5]]),
    ],
)
def test_parts_and_functions_of_a_tensor(layer: dict[str, Any], expected: list[Any]) -> None:
    assert build(row(layer))(x=PAIR).tolist() == expected


def test_arguments_go_to_a_module_by_name() -> None:
    attention = {"MultiheadAttention": {"embed_dim": 4, "num_heads": 2, "batch_first": True}}
    joined = {"look": {"query": "x", "key": "y", "value": "y"}, "out": ["look"]}
    arc = build(graph({"look": attention, "out": {"Get": None}}, joined, "out", ["x", "y"]))
    assert settle(arc, {"x": (3, 4), "y": (5, 4)}).shape == (2, 3, 4)


@pytest.mark.parametrize("name", ["WeightNormLinear", "LazyWeightNormLinear"])
def test_weight_norm_learns_length_and_direction_apart(name: str) -> None:
    sizes = {"in_features": 2, "out_features": 2} if name == "WeightNormLinear" else {"out_features": 2}
    [layer] = layers_of(settled(row({name: sizes}), 2))
    parameters = dict(layer.named_parameters())
    g, v = (parameters[f"parametrizations.weight.original{i}"] for i in (0, 1))
    with torch.no_grad():
        g.copy_(torch.tensor([[10.0], [1.0]]))
        v.copy_(torch.tensor([[3.0, 4.0], [0.0, 7.0]]))
        parameters["bias"].copy_(torch.tensor([0.0, 1.0]))
    # |v| is 5 and 7: rows 10 * (.6, .8) and 1 * (0, 1)
    torch.testing.assert_close(layer.forward(PAIR), torch.tensor([[6.0 + 16, 3], [18.0 + 32, 5]]))


def test_weight_norm_may_have_no_bias() -> None:
    assert len(list(settled(row({"LazyWeightNormLinear": {"out_features": 4, "bias": False}}), 3).parameters())) == 2


@pytest.mark.parametrize("name", ["BatchRenorm1d", "LazyBatchRenorm1d"])
def test_batch_renorm_is_the_labs_own_with_its_settings(name: str) -> None:
    size = {"num_features": 3} if name == "BatchRenorm1d" else {}
    [layer] = layers_of(settled(row({name: {**size, "warmup_steps": "5e3", "momentum": 0.1}}), 3))
    assert isinstance(layer, BatchRenorm1d)
    assert (len(layer.weight), layer.warmup_steps, layer.momentum, layer.eps) == (3, 5000, 0.1, 1e-3)
    assert (layer.steps.item(), layer.training) == (0, True)


@pytest.mark.parametrize(
    "norm", [{"LazyBatchNorm1d": {"eps": 0.01}}, {"BatchNorm1d": {"num_features": 3, "eps": 0.01}}]
)
def test_batch_norm_trains_on_a_last_minibatch_of_one_row(norm: dict[str, Any]) -> None:
    arc = settled(row(norm), 3)
    [layer] = layers_of(arc)
    assert isinstance(layer, nn.BatchNorm1d)
    assert layer.eps == 0.01
    # running mean 0 and variance 1 of the start
    torch.testing.assert_close(arc(x=torch.ones(1, 3)).detach(), torch.full((1, 3), 1.01**-0.5))


def test_texts_that_are_numbers_are_taken_as_numbers() -> None:
    layers = [
        {"LazyConv2d": {"out_channels": "4", "kernel_size": ["3", 1.0], "padding": "same"}},
        {"Dropout": {"p": "1e-1"}},
        {"LayerNorm": {"normalized_shape": ["4", 8, 8], "eps": "3e-4"}},
    ]
    convolution, dropout, norm = layers_of(settled(row(*layers), 1, 8, 8))
    assert isinstance(convolution, nn.Conv2d)
    assert isinstance(norm, nn.LayerNorm)
    assert (convolution.out_channels, convolution.kernel_size, convolution.padding) == (4, (3, 1), "same")
    assert (dropout.p, norm.normalized_shape, norm.eps) == (0.1, (4, 8, 8), 3e-4)


def test_torch_itself_stays_as_it_is() -> None:
    build(row({"LazyBatchRenorm1d": None}))
    assert not {"BatchRenorm1d", "LazyWeightNormLinear", "MergeConcat"} & vars(nn).keys()
    assert nn.BatchNorm1d is not BatchNorm1d


def test_an_unknown_layer_is_named_with_its_place_and_the_nearest() -> None:
    said = message(row({"Tanh": None}, {"Flatten": None}, {"Relu6": None}))
    assert said.startswith(f"{MODULES}.body.Sequential[2]: unknown layer 'Relu6'. Did you mean 'ReLU6'? Known: ")
    assert "LazyBatchRenorm1d" in said
    assert message(one({"MergConcat": None})).startswith(f"{MODULES}.body: unknown layer 'MergConcat'. Did you mean 'M")
    compact = {"layer": {"type": "LazyLinea", "keys": ["out_features"], "args": [4]}}
    said = message(one({"compact": compact}))
    assert said.startswith(f"{MODULES}.body.compact.layer: unknown layer 'LazyLinea'. Did you mean 'LazyLinear'?")
    said = message(
        one({"compact": {"layer": {**compact["layer"], "type": "LazyLinear"}, "postlayer": [{"Rel": None}]}})
    )
    assert said.startswith(f"{MODULES}.body.compact.postlayer[0]: unknown layer 'Rel'. Did you mean 'ReLU'?")


@pytest.mark.parametrize("name", ["MSELoss", "ModuleList", "DataParallel", "Module", "functional"])
def test_what_is_no_layer_is_unknown(name: str) -> None:
    assert message(one({name: None})).startswith(f"{MODULES}.body: unknown layer {name!r}.")


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ({"LazyLinear": {"out": 3}}, "LazyLinear: LazyLinear.__init__() got an unexpected keyword argument 'out'. "),
        ({"Linear": {"in_features": 3}}, "Linear: Linear.__init__() missing 1 required positional argument: 'out_fe"),
        ({"Linear": {"in_features": -1, "out_features": 2}}, "Linear: Trying to create tensor with negative dimension"),
        ({"Linear": 3}, "Linear: got 3 (int); allowed: a mapping of arguments, or null."),
        ({"LazyBatchRenorm1d": {"r_maxx": 2}}, "LazyBatchRenorm1d.r_maxx: unknown key. Did you mean 'r_max'? Known: "),
        ({"LazyBatchRenorm1d": {"r_max": 0.5}}, "LazyBatchRenorm1d.r_max: got 0.5 (float); allowed: greater than or e"),
        ({"BatchRenorm1d": None}, "BatchRenorm1d: batch_renorm() missing 1 required positional argument: 'num_featur"),
        ({"TorchFn": {"name": "meen"}}, "TorchFn.name: torch has no function 'meen'. Did you mean 'mean'?"),
    ],
)
def test_wrong_arguments_are_refused_with_their_place_and_what_torch_says(layer: dict[str, Any], said: str) -> None:
    assert message(row({"ReLU": None}, layer)).startswith(f"{MODULES}.body.Sequential[1].{said}")


def test_of_wrong_arguments_the_right_ones_are_told() -> None:
    assert message(row({"LazyLinear": {"out": 3}})).endswith(" It takes: out_features, bias=True.")


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (
            {"Sequential": ["ReLU"]},
            "Sequential[0]: got 'ReLU' (str); allowed: one layer and its arguments, e.g. {ReLU: null}.",
        ),
        (
            {"Sequential": [{"ReLU": None, "Tanh": None}]},
            "Sequential[0]: got {'ReLU': None, 'Tanh': None} (dict); allowed: ",
        ),
        ({"Sequential": {"ReLU": None}}, "Sequential: got {'ReLU': None} (dict); allowed: a list of layers."),
        ({"Sequential": []}, "Sequential: got [] (list); allowed: a list of layers."),
        ({"compact": {"postlayer": []}}, "compact.layer: missing key (required)."),
        ({"compact": {"layers": {}}}, "compact.layer: missing key (required).\n"),
        (
            {
                "compact": {
                    "layer": {"type": "LazyConv2d", "keys": ["out_channels", "kernel_size"], "args": [[4, 3], [5]]}
                }
            },
            "compact.layer.args[1]: got [5] (list); allowed: 2 values, for out_channels, kernel_size.",
        ),
    ],
)
def test_what_is_no_module_is_refused_with_its_place(module: dict[str, Any], said: str) -> None:
    assert message(one(module)).startswith(f"{MODULES}.body.{said}")


def test_what_a_layer_cannot_take_is_told_with_the_layer_and_the_shape() -> None:
    arc = row({"LazyLinear": {"out_features": 5}}, {"ReLU": None}, {"Linear": {"in_features": 4, "out_features": 3}})
    assert message(arc, 7) == (
        f"{MODULES}.body.Sequential[2]: Linear(in_features=4, out_features=3, bias=True) does not take [2, 5] "
        "(2 rows): mat1 and mat2 shapes cannot be multiplied (2x5 and 4x3)."
    )
    kernel = {
        "compact": {"layer": {"type": "LazyConv2d", "keys": ["out_channels", "kernel_size"], "args": [[4, 3], [4, 8]]}}
    }
    said = message(one(kernel), 1, 6, 6)
    assert said.startswith(f"{MODULES}.body.compact[1]: Conv2d(4, 4, kernel_size=(8, 8), stride=(1, 1)) does not take ")
    assert "[2, 4, 4, 4] (2 rows): Calculated padded input size per channel: (4 x 4). Kernel size: (8 x 8)" in said
    said = message(row({"ForkChunk": None}, {"LazyWeightNormLinear": {"out_features": 2}}), 4)
    assert said.startswith(
        f"{MODULES}.body.Sequential[1]: LazyWeightNormLinear() does not take ([2, 2], [2, 2]) (2 rows):"
    )


def test_a_module_of_one_layer_is_told_too() -> None:
    said = message(graph({"norm": {"LayerNorm": {"normalized_shape": 7}}}, {"norm": ["x"]}, "norm"), 5)
    assert said.startswith(
        f"{MODULES}.norm: LayerNorm((7,), eps=1e-05, elementwise_affine=True, bias=True) does not take [2, 5] (2 rows"
    )


@pytest.mark.parametrize("given", [["x", "x"], {"input": "x"}])
def test_a_row_of_layers_takes_one_input(given: Any) -> None:
    arc = graph({"body": {"Sequential": [{"ReLU": None}]}}, {"body": given}, "body")
    count = len(given)
    assert message(arc, 3) == (
        f"{MODULES}.body: a row of layers takes a list of one input, not {count}; a merge makes one of several."
    )


RELU: dict[str, Any] = {"ReLU": None}


@pytest.mark.parametrize(
    ("arc", "said"),
    [
        (
            graph({"body": RELU}, {"boddy": ["x"]}, "boddy"),
            f"{GRAPH}.modules.boddy: no module 'boddy'. Did you mean 'body'? Known: body.",
        ),
        (
            graph({"body": RELU}, {"body": ["obs"]}, "body", ["obss"]),
            f"{GRAPH}.modules.body: neither an input nor a module here is called 'obs'. "
            "Did you mean 'obss'? Known: obss, body.",
        ),
        (
            graph({"a": RELU, "b": RELU}, {"a": ["x"], "b": [["x", "c"]]}, "b"),
            f"{GRAPH}.modules.b: neither an input nor a module here is called 'c'. Known: x, a, b.",
        ),
        (
            graph({"body": RELU}, {"body": ["x"]}, {"y": "tail"}),
            f"{GRAPH}.output: neither an input nor a module here is called 'tail'. Known: x, body.",
        ),
        (
            graph({"body": RELU}, {"body": []}, "body"),
            f"{GRAPH}.modules.body: it is empty; allowed: x, body.",
        ),
        (graph({"body": RELU}, {"body": ["x"]}, []), f"{GRAPH}.output: it is empty; allowed: x, body."),
        (graph({"x": RELU}, {"x": ["x"]}, "x"), f"{GRAPH}.modules.x: an input has this name too."),
        (
            graph({"a": RELU, "b": RELU}, {"a": ["x"]}, "a"),
            f"{MODULES}.b: it has no place in {GRAPH}.modules.",
        ),
        (
            graph({"a": RELU, "b": RELU}, {"a": ["x"], "b": ["a"]}, "a"),
            f"{GRAPH}.modules.b: the output does not need it.",
        ),
        (graph({"a": RELU}, {"a": ["x"]}, "a", ["x", "y"]), f"{GRAPH}.input: 'y' goes into nothing."),
    ],
)
def test_what_is_no_graph_is_refused_in_words(arc: dict[str, Any], said: str) -> None:
    assert message(arc) == said


def test_a_circle_is_refused_with_its_modules() -> None:
    joined = {"a": [["x", "c"]], "b": ["a"], "c": ["b"]}
    said = message(graph({"a": {"MergeSum": None}, "b": RELU, "c": RELU}, joined, "c"))
    assert said.startswith(f"{GRAPH}.modules: they go round in a circle: ")
    circle = said.removesuffix(".").rpartition(": ")[2].split(" -> ")
    assert circle[0] == circle[-1]
    assert sorted(circle[1:]) == ["a", "b", "c"]


def test_keys_of_an_arc_are_checked_like_those_of_a_spec() -> None:
    arc = one(RELU)
    assert message({"modules": arc["modules"]}) == f"{GRAPH}: missing key (required)."
    assert message({**arc, "module": {}}) == (
        "agent.net.arc.module: unknown key. Did you mean 'modules'? Known: graph, modules."
    )
    said = message({**arc, "graph": {**arc["graph"], "inputs": "x"}})
    assert said == f"{GRAPH}.inputs: unknown key. Did you mean 'input'? Known: input, modules, output."
    assert message({**arc, "graph": {**arc["graph"], "modules": {"body": 3}}}).startswith(
        f"{GRAPH}.modules.body: got 3 (int)"
    )
