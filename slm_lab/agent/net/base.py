"""What all nets share: their spec keys, output heads and weight initialisation."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from slm_lab.lib.errors import hint
from slm_lab.spec.parse import Float, Int, Model
from slm_lab.spec.schema import LossSpec, LrSpec, OptimSpec
from slm_lab.types import Shape

ACTIVATIONS: dict[str, type[nn.Module]] = {
    name.lower(): cls
    for name, cls in vars(nn.modules.activation).items()
    if isinstance(cls, type) and issubclass(cls, nn.Module) and cls is not nn.Module and name != "MultiheadAttention"
}
INIT_FNS = sorted(name for name in vars(nn.init) if name.endswith("_") and not name.startswith("_"))
SQRT_2 = 2**0.5


class Head(NamedTuple):
    """One linear output: its width, and the gain of an orthogonal initialisation of its own where it has one."""

    dim: int
    gain: float | None = None


class NetSpec(Model):
    """Keys every net takes. Any of them with `actor_` or `critic_` in front holds for that net alone."""

    inert: ClassVar = {"cuda_id": "set at run time"}

    type: str = Field(
        description="MLPNet, ConvNet, RecurrentNet, TorchArcNet, HydraMLPNet, Dueling..., or `module:Class` of your own"
    )
    shared: bool = Field(False, description="policy and value share one net, optimiser and gradient clip")
    use_same_optim: bool = Field(False, description="the critic takes the actor's optimiser settings")
    hid_layers_activation: str = Field("relu", description="torch.nn activation by name, any case")
    out_layer_activation: str | list[str | None] | None = Field(
        None, description="activation of the outputs, one or one each"
    )
    init_fn: str | None = Field(
        None, description="torch.nn.init function for all weights, biases 0; unset keeps torch's own"
    )
    actor_init_std: Float | None = Field(
        None, ge=0, description="gain of an orthogonal initialisation of the policy head"
    )
    critic_init_std: Float | None = Field(
        None, ge=0, description="gain of an orthogonal initialisation of the value head"
    )
    log_std_init: Float | None = Field(
        None, description="continuous policies: a learnt log deviation apart from the state, from here"
    )
    clip_grad_val: Float | None = Field(None, gt=0, description="clip this net's gradient to this norm")
    loss_spec: LossSpec = Field(LossSpec(), description="torch.nn loss of values, e.g. {name: SmoothL1Loss}")
    optim_spec: OptimSpec = Field(
        OptimSpec(), description="torch.optim class and its arguments, e.g. {name: Adam, lr: 3e-4}"
    )
    lr_scheduler_spec: LrSpec | None = Field(
        None, description="learning rate as a function of the frame; unset for constant"
    )
    update_type: Literal["replace", "polyak"] = Field("replace", description="how a target net follows")
    update_frequency: Float = Field(1, gt=0, description="frames between replacements of a target net")
    polyak_coef: Float = Field(0.0, ge=0, le=1, description="weight of the new parameters in a target net")
    gpu: bool | Literal["auto"] | Int | None = Field("auto", description="auto: a GPU where there is one; false: never")
    entries: list[str] | None = Field(
        None, min_length=1, description="entries of the observation that this net looks at; unset: all of them"
    )
    encoders: dict[str, dict[str, Any]] | None = Field(
        None, description="a net for each named entry of the observation, whose outputs are joined; see docs on nets"
    )

    @field_validator("hid_layers_activation")
    @classmethod
    def _known_activation(cls, name: str) -> str:
        return _activation_name(name)

    @field_validator("out_layer_activation")
    @classmethod
    def _known_outputs(cls, names: Any) -> Any:
        for name in names if isinstance(names, list) else [names]:
            if name is not None:
                _activation_name(name)
        return names

    @field_validator("init_fn")
    @classmethod
    def _known_init(cls, name: str | None) -> str | None:
        if name is not None and name not in INIT_FNS:
            raise ValueError(f"a function of torch.nn.init.{hint(name, INIT_FNS)} Known: {', '.join(INIT_FNS)}")
        return name


def _activation_name(name: str) -> str:
    if name.lower().replace("_", "") not in ACTIVATIONS:
        raise ValueError(f"a torch.nn activation.{hint(name, ACTIVATIONS)} Known: {', '.join(sorted(ACTIVATIONS))}")
    return name


def activation(name: str) -> nn.Module:
    """A torch.nn activation by name, any case."""
    return ACTIVATIONS[name.lower().replace("_", "")]()


class Chain(nn.Sequential):
    """Layers one after another, without torch's hooks on each: on small nets those cost as much as the layers."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer.forward(x)
        return x


class Net(nn.Module):
    """Encode an observation, then a body, then one linear head per output.

    forward: [B, *in_shape], and `side` numbers [B, side] that join what is encoded -> one tensor [B, dim] per head.
    """

    Spec: ClassVar[type[NetSpec]]
    takes_entries: ClassVar[bool] = False  # does it take a dict of arrays, or one array that encoders made of them?

    def __init__(self, spec: NetSpec, body: nn.Module, features: int, heads: Sequence[Head]) -> None:
        super().__init__()
        self.body, self.size = body, features
        self.heads = nn.ModuleList(self._head(spec, features, head, i) for i, head in enumerate(heads))
        initialise(self, spec)
        for module, head in zip(self.heads, heads, strict=True):
            if head.gain is not None:
                linear = module[0] if isinstance(module, nn.Sequential) else module
                assert isinstance(linear, nn.Linear)
                nn.init.orthogonal_(linear.weight, head.gain)
                nn.init.zeros_(linear.bias)

    @classmethod
    def parts(cls, spec: Any) -> tuple[NetSpec | None, NetSpec]:
        """Where an observation has several entries: the net for images, if it has layers for them, and the rest."""
        return None, spec

    @staticmethod
    def _head(spec: NetSpec, features: int, head: Head, index: int) -> nn.Module:
        linear = nn.Linear(features, head.dim)
        out = spec.out_layer_activation
        name = (out[index] if index < len(out) else None) if isinstance(out, list) else out
        return linear if name is None else Chain(linear, activation(name))

    def encode(self, x: Tensor) -> Tensor:
        """What the body takes, [B, size]: of a flat observation, itself."""
        return x.float()

    def features(self, x: Tensor, side: Tensor | None = None) -> Tensor:
        """What the heads take, [B, self.size]."""
        encoded = self.encode(x)
        features: Tensor = self.body.forward(encoded if side is None else torch.cat([encoded, side], -1))
        return features

    def forward(self, x: Tensor, side: Tensor | None = None) -> list[Tensor]:
        features = self.features(x, side)
        return [head.forward(features) for head in self.heads]


def initialise(module: nn.Module, spec: NetSpec) -> None:
    """Apply `init_fn` to every Linear and Conv weight with the gain of the hidden activation; biases become 0."""
    if spec.init_fn is None:
        return
    function = vars(nn.init)[spec.init_fn]
    arguments = inspect.signature(function).parameters
    kwargs: dict[str, Any] = {}
    if "gain" in arguments:
        kwargs["gain"] = _gain(spec.hid_layers_activation)
    elif "nonlinearity" in arguments:
        name = spec.hid_layers_activation.lower()
        kwargs["nonlinearity"] = "leaky_relu" if name.startswith("leaky") else "relu"
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d):
            function(part.weight, **kwargs)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def _gain(name: str) -> float:
    """torch's gain for an activation; sqrt 2, that of relu, for its smooth kin which torch does not know."""
    name = {"leakyrelu": "leaky_relu"}.get(name.lower().replace("_", ""), name.lower())
    try:
        return float(nn.init.calculate_gain(name))  # type: ignore[arg-type]
    except ValueError:
        return SQRT_2


def flat_size(shape: Shape) -> int:
    """Number of inputs of a net that takes one flat vector."""
    return int(torch.Size(shape).numel())
