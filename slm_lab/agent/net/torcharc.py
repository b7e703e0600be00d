"""TorchArcNet: a body of any layers, written down in the spec or in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from pydantic import Field, ValidationInfo, field_validator, model_validator
from torch import Tensor

from slm_lab.agent.net.arc import ROWS, build, settle
from slm_lab.agent.net.arc_graph import ArcSpec
from slm_lab.agent.net.base import Head, Net, NetSpec
from slm_lab.lib.errors import LabError, SpecError
from slm_lab.spec.parse import parse
from slm_lab.spec.text import read
from slm_lab.types import Shape

ACTION = "action"  # the graph's input for an action to be valued
_NORMS = "norms are layers of the arc"


class TorchArcNetSpec(NetSpec):
    """Any layers of torch.nn, joined in any way."""

    inert: ClassVar = NetSpec.inert | {"batch_norm": _NORMS, "layer_norm": _NORMS}

    hid_layers_activation: str = Field(
        "relu", description="chooses the gain of init_fn, no more: activations are layers of the arc"
    )
    arc: ArcSpec | None = Field(None, description="the layers and how they are joined: {modules, graph}")
    arc_file: str | None = Field(
        None, validate_default=True, description="instead: a JSON or YAML file that holds it, from the working folder"
    )
    normalize: bool = Field(False, description="divide images by 255")

    @field_validator("arc_file")
    @classmethod
    def _one_of_both(cls, file: str | None, info: ValidationInfo) -> str | None:
        if "arc" in info.data and (info.data["arc"] is None) == (file is None):
            if file is None:
                raise ValueError("a file, where there is no `arc`")
            raise ValueError("null beside `arc`; where it holds for one net alone, `actor_arc` or `critic_arc: null`")
        return file

    @model_validator(mode="after")
    def _can_be_built(self) -> Self:
        """What is wrong with an arc whatever the env shows, before a run starts."""
        with torch.random.fork_rng(devices=[]):
            build(*self.found_arc())
        return self

    def found_arc(self) -> tuple[ArcSpec, str]:
        """The arc, and the key it comes from."""
        if self.arc is not None:
            return self.arc, "agent.net.arc"
        assert self.arc_file is not None
        try:
            data = read(Path(self.arc_file))
        except LabError as error:
            raise SpecError(f"agent.net.arc_file: {error}") from None
        return parse(ArcSpec, data, "agent.net.arc_file", []), "agent.net.arc_file"


class TorchArcNet(Net):
    """The arc, then heads. The observation is the graph's first input.

    Of several outputs the first counts, of a dict its first entry; [B, ...] becomes [B, size]. `side` numbers go to the
    input `action` where the graph has one, else to the end of a flat observation.
    """

    Spec = TorchArcNetSpec

    def __init__(self, spec: TorchArcNetSpec, in_shape: Shape, heads: Sequence[Head], side: int = 0) -> None:
        found, path = spec.found_arc()
        shapes = _input_shapes(found.graph.inputs, in_shape, side, f"{path}.graph.input")
        arc = build(found, path)
        output = settle(arc, shapes)
        super().__init__(spec, arc, _checked(output, f"{path}.graph.output").shape[1], heads)
        self.scale = 255 if spec.normalize else None
        self.input = next(iter(shapes))
        self.takes_action = ACTION in shapes

    def encode(self, x: Tensor) -> Tensor:
        return x.float() if self.scale is None else x.float() / self.scale

    def features(self, x: Tensor, side: Tensor | None = None) -> Tensor:
        encoded = self.encode(x)
        if side is None:
            output = self.body.forward(**{self.input: encoded})
        elif self.takes_action:
            output = self.body.forward(**{self.input: encoded, ACTION: side})
        else:
            output = self.body.forward(**{self.input: torch.cat([encoded, side], -1)})
        return _rows(output)


def _input_shapes(names: Sequence[str], in_shape: Shape, side: int, path: str) -> dict[str, Shape]:
    """Shapes of one row by the graph's inputs, that of the observation first."""
    others = [name for name in names if name != ACTION]
    if len(others) != 1:
        came = f"got {', '.join(names) or 'none'}"
        raise SpecError(f"{path}: {came}; allowed: one for the observation, and `{ACTION}` for an action to be valued.")
    if ACTION in names:
        if not side:
            reason = "this net values no action, only critics of continuous actions do"
            raise SpecError(f"{path}: nothing gives `{ACTION}`: {reason}. Leave it out, or make it `critic_arc`.")
        return {others[0]: in_shape, ACTION: (side,)}
    if not side:
        return {others[0]: in_shape}
    if len(in_shape) != 1:
        reason = f"an observation of shape {list(in_shape)} cannot be joined with the {side} numbers of an action"
        ways = f"Name `{ACTION}` as a second input and join it where the graph can, or take ConvNet, which does so"
        raise SpecError(f"{path}: {reason}. {ways}.")
    return {others[0]: (in_shape[0] + side,)}


def _rows(output: Any) -> Tensor:
    """Features [B, size] of what the graph gives."""
    while not isinstance(output, Tensor):
        output = next(iter(output.values())) if isinstance(output, dict) else output[0]
    return output.flatten(1) if output.dim() > 2 else output


def _checked(output: Any, path: str) -> Tensor:
    """Features of `ROWS` rows, if they are that."""
    features = _rows(output)
    if features.dim() < 2 or len(features) != ROWS:
        raise SpecError(f"{path}: {ROWS} rows come out as {list(features.shape)}; allowed: one row of features each.")
    return features
