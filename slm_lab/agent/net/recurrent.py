"""RecurrentNet: layers with a memory of the episode so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from slm_lab.agent.net.base import Chain, Head, Net, NetSpec, activation, flat_size, initialise
from slm_lab.agent.net.gru import GRU
from slm_lab.agent.net.linear import Widths, linear_layers
from slm_lab.spec.parse import Int
from slm_lab.types import Shape, Stretch

CELLS: dict[str, type[nn.RNN | nn.LSTM | nn.GRU]] = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": GRU}


class RecurrentNetSpec(NetSpec):
    """Linear layers, then recurrent ones."""

    inert: ClassVar = NetSpec.inert | {"normalize": "linear layers take no images to divide by 255"}

    cell_type: Literal["RNN", "LSTM", "GRU"] = Field("GRU", description="kind of recurrent layer")
    fc_hid_layers: Widths = Field([], description="widths of linear layers before the recurrent ones; may be empty")
    rnn_hidden_size: Int = Field(ge=1, description="width of a recurrent layer")
    rnn_num_layers: Int = Field(1, ge=1, description="recurrent layers")
    bidirectional: bool = Field(False, description="must be false: an agent that acts does not know what comes later")
    seq_len: Int = Field(ge=1, description="steps of an episode that gradients reach back over")
    burn_in: Int | None = Field(
        None, ge=0, description="replay only: steps before those, to renew a stored memory; unset: seq_len / 2"
    )

    @field_validator("bidirectional")
    @classmethod
    def _forward_only(cls, value: bool) -> bool:
        if value:
            raise ValueError("false, as an agent that acts knows nothing of the steps to come")
        return value

    @property
    def stretch(self) -> Stretch:
        return Stretch(self.seq_len, self.seq_len // 2 if self.burn_in is None else self.burn_in)


class RecurrentNet(Net):
    """[linear -> activation] -> recurrent layers -> heads; `side` numbers pass one more layer with what it remembers.

    What it remembers of an episode is one row of numbers [B, hidden]; zeros at the start of each.
    """

    Spec = RecurrentNetSpec

    def __init__(self, spec: RecurrentNetSpec, in_shape: Shape, heads: Sequence[Head], side: int = 0) -> None:
        size = flat_size(in_shape)
        body, size = linear_layers(size, spec.fc_hid_layers, spec.hid_layers_activation)
        super().__init__(spec, body, spec.rnn_hidden_size, heads)
        self.rnn = CELLS[spec.cell_type](size, spec.rnn_hidden_size, spec.rnn_num_layers)
        self.states = 2 if spec.cell_type == "LSTM" else 1
        self.hidden = self.states * spec.rnn_num_layers * spec.rnn_hidden_size
        self.join = None
        if side:
            joint = nn.Linear(spec.rnn_hidden_size + side, spec.rnn_hidden_size)
            self.join = Chain(joint, activation(spec.hid_layers_activation))
            initialise(self.join, spec)
        _initialise(self.rnn, spec)

    def encode(self, x: Tensor) -> Tensor:
        return x.flatten(1).float()

    def outputs(self, features: Tensor, side: Tensor | None = None) -> list[Tensor]:
        """Heads over what the recurrent layers give, [B, size]."""
        if self.join is not None and side is not None:
            features = self.join.forward(torch.cat([features, side], -1))
        return [head.forward(features) for head in self.heads]

    def step(self, x: Tensor, hidden: Tensor, side: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
        """Outputs for rows [B, ...] that each go on from what is remembered [B, hidden], and what is then."""
        features, hidden = self._run(self.body.forward(self.encode(x)).unsqueeze(0), hidden)
        return self.outputs(features[0], side), hidden

    def unroll(self, x: Tensor, hidden: Tensor, first: Tensor, burn_in: int) -> Tensor:
        """Features [K * S, size] of S stretches of K steps: rows x [K * S, ...], hidden [K, S, hidden], first [K, S].

        Those of the first `burn_in` steps are zeros.
        """
        inputs = self.body.forward(self.encode(x)).view(*first.shape, -1)
        start = hidden[0]
        if burn_in:
            with torch.no_grad():
                start = self._after(inputs[:burn_in], hidden[:burn_in], first[:burn_in])
            start = torch.where(first[burn_in].unsqueeze(-1), hidden[burn_in], start)
        features = self._pieces(inputs[burn_in:], start, hidden[burn_in:], first[burn_in:])
        if burn_in:
            features = torch.cat([features.new_zeros(burn_in, *features.shape[1:]), features])
        return features.flatten(0, 1)

    def _pieces(self, inputs: Tensor, start: Tensor, hidden: Tensor, first: Tensor) -> Tensor:
        """Features [K, S, size] from `start` [S, hidden], and from what was stored wherever `first` is set.

        A stretch is cut where it takes up another memory; its pieces pass the recurrent layers side by side, in one
        call, and what comes after the end of a piece is left out.
        """
        if not first[1:].any():
            return self._run(inputs, start)[0]
        steps, count = first.shape
        begins = first.clone()
        begins[0] = True
        piece = begins.T.flatten().cumsum(0).view(count, steps).T - 1  # [K, S], numbered along each stretch in turn
        step = torch.arange(steps, device=first.device).unsqueeze(-1).expand(steps, count)
        time = step - torch.where(begins, step, 0).cummax(0).values
        longest, pieces = int(time.max()) + 1, int(piece[-1, -1]) + 1
        padded = inputs.new_zeros(longest, pieces, inputs.shape[-1]).index_put((time, piece), inputs)
        taken = torch.cat([start.unsqueeze(0), hidden[1:]])
        features = self._run(padded, taken.transpose(0, 1)[begins.T])[0]
        return features[time, piece]

    def _after(self, inputs: Tensor, hidden: Tensor, first: Tensor) -> Tensor:
        """What is remembered [S, hidden] at the end of stretches [K, S]: the last piece of each decides."""
        steps, count = first.shape
        step = torch.arange(steps, device=first.device).unsqueeze(-1)
        begin = torch.where(first, step, 0).amax(0)  # [S], the step at which its last piece begins
        stretch = torch.arange(count, device=first.device)
        row = (begin + step).clamp_max(steps - 1)
        packed = pack_padded_sequence(inputs[row, stretch], (steps - begin).cpu(), enforce_sorted=False)
        return self._run(packed, hidden[begin, stretch])[1]

    def _run(self, inputs: Any, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The recurrent layers over [K, B, ...] from [B, hidden]: features [K, B, size] and what is remembered then."""
        layers = hidden.view(len(hidden), -1, self.size).transpose(0, 1).contiguous()
        state = tuple(layers.chunk(2)) if self.states == 2 else layers
        features, state = self.rnn(inputs, state)
        after = torch.cat(state) if self.states == 2 else state
        return features, after.transpose(0, 1).flatten(1)


def _initialise(rnn: nn.Module, spec: RecurrentNetSpec) -> None:
    """`init_fn` for recurrent weights with a gain of 1, which suits their gates; biases 0."""
    if spec.init_fn is None:
        return
    function = vars(nn.init)[spec.init_fn]
    for parameter in rnn.parameters():
        if parameter.dim() > 1:
            function(parameter)
        else:
            nn.init.zeros_(parameter)
