"""One optimiser step for all nets of an algorithm: zero, backward, clip per net, step; learning rates over frames."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from slm_lab.agent.net.flat import flatten
from slm_lab.agent.net.shared import SharedStep, SharedWeights
from slm_lab.lib.errors import NotFiniteError, SpecError, hint, lookup
from slm_lab.spec.schema import LossSpec, LrSpec, OptimSpec
from slm_lab.types import State

ELEMENTWISE = {"Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"}
"""Optimisers that treat every number alike, so that a net's parameters may be one flat vector."""
FUSED = {"Adagrad", "Adam", "AdamW", "SGD"}
LINEAR = ("LinearToZero", "LinearToMin")
NOT_BY_NAME = {
    "ChainedScheduler",
    "LambdaLR",
    "LRScheduler",
    "MultiplicativeLR",
    "ReduceLROnPlateau",
    "SequentialLR",
}
"""Schedules of torch that need more than plain values: functions, other schedules, a score at each step."""
STREAK = 100  # skipped steps in a row after which a session stops


@dataclass(frozen=True)
class Group:
    """The parameters of one net and how they learn."""

    name: str
    params: list[nn.Parameter]
    optim: OptimSpec
    lr_spec: LrSpec | None
    clip: float | None
    bounds: tuple[float, float] | None = None  # what parameters are held within after each step


class Optim:
    """The optimisers of an algorithm's nets, stepped together.

    Each net's parameters become views of one flat vector, and so do their gradients: clearing, clipping and stepping
    are then one operation a net instead of one a tensor.
    """

    def __init__(self, groups: list[Group]) -> None:
        self.groups = groups
        self.optimizers = {g.name: _make_optimizer(g) for g in groups}
        self.params: dict[str, list[nn.Parameter]] = {
            name: [p for part in optimizer.param_groups for p in part["params"]]
            for name, optimizer in self.optimizers.items()
        }
        self.steps = {g.name: _plain_step(self.optimizers[g.name], g) for g in groups}
        self.leaves: dict[str, list[nn.Parameter]] = {g.name: g.params for g in groups}
        self.schedules = {g.name: LrSchedule(g.lr_spec, self.lr_of(g.name)) for g in groups}
        self.shared: SharedStep | None = None  # where other processes step the same parameters
        self.norms: dict[str, float] = {}
        self.nan_skips = 0
        self.streak = 0

    def join(self, weights: SharedWeights) -> None:
        """From now on train the parameters and optimiser state of several workers, in place of our own."""
        self.shared = SharedStep(weights, self.optimizers, self.leaves)
        for schedule in self.schedules.values():
            schedule.pace = weights.workers

    def lr_of(self, name: str) -> float:
        return float(self.optimizers[name].param_groups[0]["lr"])

    @property
    def lr(self) -> float:
        """Mean learning rate over nets, for the log."""
        return sum(map(self.lr_of, self.optimizers)) / len(self.optimizers)

    def set_lr(self, frame: int) -> None:
        """Called once an update, before its steps."""
        for name, schedule in self.schedules.items():
            if schedule.spec is not None:
                lr = schedule.at(frame)
                for group in self.optimizers[name].param_groups:
                    group["lr"] = lr

    def step(self, losses: Mapping[str, Tensor], only: Collection[str] | None = None) -> float:
        """Descend the sum of named losses, for all nets or `only` those named; the loss, NaN where it was skipped."""
        names = self.params.keys() if only is None else only
        total = sum_losses(losses)
        value = total.item()
        if not math.isfinite(value):
            return self._skip(f"loss {_first_bad(losses)}")
        for name in names:
            for param in self.params[name]:
                if param.grad is not None:
                    param.grad.zero_()
        # only where asked for: an actor's loss passes through its critics without a gradient for their weights
        leaves = None if only is None else [param for name in names for param in self.leaves[name]]
        total.backward(inputs=leaves)  # type: ignore[no-untyped-call]
        for group in self.groups:
            if group.name in names and not math.isfinite(self._clip(group)):
                return self._skip(f"gradient of {group.name}")
        if self.shared is not None:
            self.shared.step(names)
        else:
            with torch.no_grad():
                for name in names:
                    self.steps[name]()
        self.streak = 0
        return value

    def reckon(self, names: Collection[str], loss: float, norms: Sequence[float]) -> float:
        """Note what a compiled step of these nets came to; the loss, NaN where it was skipped."""
        if not math.isfinite(loss):
            return self._skip("loss")
        self.norms.update(zip(names, norms, strict=True))
        for name, norm in zip(names, norms, strict=True):
            if not math.isfinite(norm):
                return self._skip(f"gradient of {name}")
        self.streak = 0
        return loss

    def _clip(self, group: Group) -> float:
        """Scale the gradient down to the group's norm; returns the norm it had."""
        grads = [param.grad for param in self.params[group.name] if param.grad is not None]
        norm = math.sqrt(sum(float(torch.dot(g.view(-1), g.view(-1))) for g in grads))
        self.norms[group.name] = norm
        if group.clip is not None and norm > group.clip:
            for grad in grads:
                grad.mul_(group.clip / (norm + 1e-6))
        return norm

    def _skip(self, what: str) -> float:
        self.nan_skips += 1
        self.streak += 1
        if self.streak >= STREAK:
            raise NotFiniteError(f"{self.streak} gradient steps in a row were skipped because {what} is not finite")
        return math.nan

    def state_dict(self) -> State:
        return {
            "optimizers": {name: optimizer.state_dict()["state"] for name, optimizer in self.optimizers.items()},
            "lr": {name: self.lr_of(name) for name in self.optimizers},
            "schedules": {name: schedule.state_dict() for name, schedule in self.schedules.items()},
            "norms": dict(self.norms),
            "nan_skips": self.nan_skips,
            "streak": self.streak,
        }

    def load_state_dict(self, state: State) -> None:
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state["optimizers"][name]})
            for group in optimizer.param_groups:
                group["lr"] = state["lr"][name]
            self.schedules[name].load_state_dict(state["schedules"][name])
        self.norms, self.nan_skips, self.streak = dict(state["norms"]), state["nan_skips"], state["streak"]


class LrSchedule:
    """A learning rate as a function of the frame, or of the number of updates for torch's own schedulers."""

    def __init__(self, spec: LrSpec | None, base: float) -> None:
        self.spec, self.base = spec, base
        self.pace = 1  # updates that each of ours stands for: workers that share their weights take turns
        self.torch: Any = None
        if spec is None or spec.name in LINEAR:
            self.frame, self.floor = _linear_arguments(spec) if spec else (1.0, 1.0)
            return
        cls = schedule_class(spec.name)
        # a throw-away optimiser carries torch's scheduler, so that each net may have its own
        carrier = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=base)
        try:
            self.torch = cls(carrier, **spec.kwargs)
        except (TypeError, ValueError) as error:
            raise SpecError(f"agent.net.lr_scheduler_spec: {spec.name}: {error}.") from None
        carrier.step()  # torch warns when a scheduler steps before its optimiser

    def at(self, frame: int) -> float:
        if self.torch is None:
            return self.base * max(self.floor, 1 - frame / self.frame * (1 - self.floor))
        lr = float(self.torch.get_last_lr()[0])
        for _ in range(self.pace):
            self.torch.step()
        return lr

    def state_dict(self) -> State:
        return {} if self.torch is None else {k: v for k, v in self.torch.state_dict().items() if not callable(v)}

    def load_state_dict(self, state: State) -> None:
        if self.torch is not None:
            self.torch.load_state_dict(state)
            # most schedules go on from the carrier's rate, which is no part of their own state
            self.torch.optimizer.param_groups[0]["lr"] = state["_last_lr"][0]


def schedule_class(name: str) -> Any:
    """A class of torch.optim.lr_scheduler by name."""
    classes: dict[str, Any] = {
        key: value
        for key, value in vars(torch.optim.lr_scheduler).items()
        if isinstance(value, type)
        and issubclass(value, torch.optim.lr_scheduler.LRScheduler)
        and not key.startswith("_")
        and key not in NOT_BY_NAME
    }
    known = dict.fromkeys(LINEAR) | classes
    return lookup(known, name, "agent.net.lr_scheduler_spec.name", "learning rate schedule")


def _linear_arguments(spec: LrSpec) -> tuple[float, float]:
    """(frame, floor) of LinearToZero and LinearToMin."""
    kwargs = dict(spec.kwargs)
    frame, floor = kwargs.pop("frame", None), kwargs.pop("min_factor", 0.1) if spec.name == "LinearToMin" else 0.0
    numbers = isinstance(frame, int | float) and isinstance(floor, int | float)
    if kwargs or not numbers or frame <= 0 or not 0 <= floor <= 1:
        allowed = "frame (> 0)" + (", min_factor (0 to 1)" if spec.name == "LinearToMin" else "")
        raise SpecError(f"agent.net.lr_scheduler_spec: {spec.name} takes {allowed}; got {spec.kwargs}.")
    return float(frame), float(floor)


def sum_losses(losses: Mapping[str, Tensor]) -> Tensor:
    first, *rest = losses.values()
    for loss in rest:
        first = first + loss
    return first


def _first_bad(losses: Mapping[str, Tensor]) -> str:
    return next((name for name, loss in losses.items() if not math.isfinite(loss.item())), "sum")


def optimizer_class(spec: OptimSpec) -> type[torch.optim.Optimizer]:
    """A torch.optim class by name. SLM-Lab's own names stand for their plain kin."""
    name = {"GlobalAdam": "Adam", "GlobalRMSprop": "RMSprop", "Lookahead": "AdamW"}.get(spec.name, spec.name)
    classes = {
        k: v
        for k, v in vars(torch.optim).items()
        if isinstance(v, type)
        and issubclass(v, torch.optim.Optimizer)
        and k not in ("Optimizer", "LBFGS", "SparseAdam")
    }
    return lookup(classes, name, "agent.net.optim_spec.name", "optimiser")


def optimizer_kwargs(spec: OptimSpec) -> dict[str, Any]:
    """Arguments of an optimiser, checked against its signature."""
    cls, kwargs = optimizer_class(spec), dict(spec.kwargs)
    known = [p for p in inspect.signature(cls).parameters if p != "params"]
    for key in kwargs:
        if key not in known:
            near = f"{hint(key, known)} Known: {', '.join(known)}."
            raise SpecError(f"agent.net.optim_spec.{key}: {cls.__name__} takes no such argument.{near}")
    if isinstance(kwargs.get("betas"), list):
        kwargs["betas"] = tuple(kwargs["betas"])
    if spec.lr is not None:
        kwargs["lr"] = spec.lr
    return {"fused": True, **kwargs} if cls.__name__ in FUSED and not kwargs.get("foreach") else kwargs


def _make_optimizer(group: Group) -> torch.optim.Optimizer:
    """The group's optimiser; weight decay spares biases, norms and deviations, which it would only harm."""
    cls, kwargs = optimizer_class(group.optim), optimizer_kwargs(group.optim)
    parts: list[dict[str, Any]] = [{"params": group.params}]
    if kwargs.get("weight_decay", _default_decay(cls)):
        matrices = [p for p in group.params if p.dim() > 1]
        parts = [{"params": matrices}, {"params": [p for p in group.params if p.dim() <= 1], "weight_decay": 0.0}]
    parts = [part for part in parts if part["params"]]
    if cls.__name__ in ELEMENTWISE:
        for part in parts:
            part["params"] = [flatten(part["params"])]
    try:
        optimizer = cls(parts, **kwargs)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        raise SpecError(f"agent.net.optim_spec: {cls.__name__}: {error}.") from None
    if group.bounds is not None:
        optimizer.register_step_post_hook(partial(_hold_within, group.bounds))
    return optimizer


def _plain_step(optimizer: torch.optim.Optimizer, group: Group) -> Callable[[], Any]:
    """An optimiser's step without torch's profiling around it, which costs more than the step of a small net."""
    if group.bounds is not None:
        return optimizer.step  # its hook holds the parameters within
    return partial(inspect.unwrap(type(optimizer).step), optimizer)


def _hold_within(bounds: tuple[float, float], optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Part of the step, so that it is also under the lock where workers share the parameters."""
    for part in optimizer.param_groups:
        for param in part["params"]:
            param.data.clamp_(*bounds)


def _default_decay(cls: type[torch.optim.Optimizer]) -> float:
    parameter = inspect.signature(cls).parameters.get("weight_decay")
    return float(parameter.default) if parameter is not None else 0.0


def make_loss(spec: LossSpec, reduction: str = "mean") -> nn.Module:
    """A torch.nn loss by name."""
    classes = {
        k: v
        for k, v in vars(nn.modules.loss).items()
        if isinstance(v, type) and k.endswith("Loss") and not k.startswith("_")
    }
    cls = lookup(classes, spec.name, "agent.net.loss_spec.name", "loss")
    try:
        loss: nn.Module = cls(reduction=reduction, **spec.kwargs)
    except TypeError as error:
        raise SpecError(f"agent.net.loss_spec: {spec.name}: {error}.") from None
    return loss
