from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from slm_lab.agent.net.optim import STREAK, Group, LrSchedule, Optim, make_loss, optimizer_class, optimizer_kwargs
from slm_lab.lib.errors import RunError, SpecError
from slm_lab.spec.schema import LossSpec, LrSpec, OptimSpec

OBS = torch.randn(20, 3, generator=torch.Generator().manual_seed(2))

OPTIMISERS: dict[str, dict[str, Any]] = {
    "Adam": {"lr": 0.01, "eps": 1e-5, "betas": [0.8, 0.99]},
    "AdamW": {"lr": 0.01},
    "RMSprop": {"lr": 0.01, "alpha": 0.99, "eps": 1e-5},
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    "Adagrad": {"lr": 0.1},
    "Adadelta": {},
    "Adamax": {"lr": 0.01},
    "ASGD": {"lr": 0.01},
    "NAdam": {"lr": 0.01},
    "RAdam": {"lr": 0.01},
    "Rprop": {"lr": 0.01},
    "Adafactor": {"lr": 0.1},  # takes rows and columns of a matrix: must not see one flat vector
}


class TwoNets(nn.Module):
    """A policy with a deviation of its own, and a value."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.actor = nn.Sequential(nn.Linear(3, 5, bias), nn.Tanh(), nn.Linear(5, 2, bias))
            self.critic = nn.Sequential(nn.Linear(3, 4, bias), nn.LayerNorm(4, bias=bias), nn.Linear(4, 1, bias))
        self.log_std = nn.Parameter(torch.tensor([0.5, -0.5]))

    def parts(self, spec: OptimSpec, clip: float | None = None, lr_spec: LrSpec | None = None) -> list[Group]:
        return [
            Group("actor", [*self.actor.parameters(), self.log_std], spec, lr_spec, clip),
            Group("critic", list(self.critic.parameters()), spec, lr_spec, None if clip is None else 2 * clip),
        ]

    def losses(self, scale: float = 1.0) -> dict[str, Tensor]:
        policy = (self.actor(OBS) * self.log_std.exp() - OBS[:, :2]) ** 2
        return {"policy": scale * policy.sum(), "value": scale * (self.critic(OBS) - 3).square().mean()}


def weights(module: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(left, right, strict=True))


def torchs_own(net: TwoNets, spec: OptimSpec, steps: int, clip: float) -> None:
    """The same descent with torch's optimiser over single tensors, clipped net by net."""
    nets = {group.name: group.params for group in net.parts(spec)}
    kwargs = {key: value for key, value in optimizer_kwargs(spec).items() if key != "fused"}
    decay = kwargs.pop("weight_decay", 0.01 if spec.name == "AdamW" else 0.0)
    optimisers = []
    for params in nets.values():
        groups = [
            {"params": [p for p in params if p.dim() > 1], "weight_decay": decay},
            {"params": [p for p in params if p.dim() <= 1], "weight_decay": 0.0},
        ]
        optimisers.append(optimizer_class(spec)(groups if spec.name != "Rprop" else [{"params": params}], **kwargs))
    for _ in range(steps):
        net.zero_grad()
        policy, value = net.losses().values()
        (policy + value).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(nets["actor"], clip)
        nn.utils.clip_grad_norm_(nets["critic"], 2 * clip)
        for optimiser in optimisers:
            optimiser.step()


@pytest.mark.parametrize("name", OPTIMISERS)
def test_five_clipped_steps_are_those_of_torch_over_single_tensors(name: str) -> None:
    spec = OptimSpec(name=name, **OPTIMISERS[name])
    ours, theirs = TwoNets(), TwoNets()
    before, optim = weights(ours), Optim(ours.parts(spec, clip=0.5))
    for _ in range(5):
        optim.step(ours.losses())
    torchs_own(theirs, spec, 5, clip=0.5)
    assert not same(weights(ours), before)
    for one, other in zip(weights(ours), weights(theirs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_muon_steps_matrices_and_refuses_vectors_in_words() -> None:
    if "Muon" not in vars(torch.optim):
        pytest.skip("this torch has no Muon")
    net = nn.Linear(3, 2, bias=False)
    before = weights(net)
    optim = Optim([Group("actor", list(net.parameters()), OptimSpec(name="Muon", lr=0.1), None, None)])
    optim.step({"loss": net(OBS).square().mean()})
    assert not same(weights(net), before)
    with pytest.raises(SpecError, match=r"agent\.net\.optim_spec: Muon: .*2D"):
        Optim(TwoNets().parts(OptimSpec(name="Muon", lr=0.1)))


def test_gradients_are_clipped_net_by_net_and_reported_as_they_were() -> None:
    net = TwoNets()
    optim = Optim(net.parts(OptimSpec(name="SGD", lr=1.0), clip=0.25))
    before = copy.deepcopy(net)
    optim.step(net.losses())
    norms = {"actor": 0.0, "critic": 0.0}
    for name, old, new in zip(
        [n for n, _ in net.named_parameters()], before.parameters(), net.parameters(), strict=True
    ):
        norms["critic" if name.startswith("critic") else "actor"] += (old - new).square().sum().item()
    # at lr 1 the step is the clipped gradient: .25 for the actor, twice that for the critic
    assert {name: math.sqrt(total) for name, total in norms.items()} == pytest.approx(
        {"actor": 0.25, "critic": 0.5}, rel=1e-4
    )
    assert optim.norms["actor"] > 1
    assert optim.norms["critic"] > 0.5


def test_a_gradient_below_the_limit_is_left_alone() -> None:
    net, free = TwoNets(), TwoNets()
    Optim(net.parts(OptimSpec(name="SGD", lr=1.0), clip=1e6)).step(net.losses())
    Optim(free.parts(OptimSpec(name="SGD", lr=1.0))).step(free.losses())
    assert same(weights(net), weights(free))


@pytest.mark.parametrize("name", ["AdamW", "SGD", "Adam", "RMSprop"])
def test_weight_decay_spares_biases_norms_and_deviations(name: str) -> None:
    net = TwoNets()
    before = dict(copy.deepcopy(net).named_parameters())
    Optim(net.parts(OptimSpec(name=name, lr=0.1, weight_decay=0.5))).step(
        {"nothing": 0.0 * sum(p.sum() for p in net.parameters())}  # type: ignore[dict-item]
    )
    for name_of, param in net.named_parameters():
        moved = not torch.equal(param, before[name_of])
        assert moved == (param.dim() > 1), name_of
    if name == "AdamW":
        torch.testing.assert_close(net.actor[0].weight, before["actor.0.weight"] * (1 - 0.1 * 0.5))


def test_only_the_nets_that_are_named_step() -> None:
    net = TwoNets()
    actor, critic = weights(net.actor), weights(net.critic)
    optim = Optim(net.parts(OptimSpec(name="Adam", lr=0.01)))
    optim.step({"value": net.losses()["value"]}, ["critic"])
    assert same(weights(net.actor), actor)
    assert not same(weights(net.critic), critic)


def test_the_reported_loss_is_the_sum_of_its_terms() -> None:
    net = TwoNets()
    terms = net.losses()
    assert Optim(net.parts(OptimSpec())).step(terms) == pytest.approx(sum(term.item() for term in terms.values()))


# what is not finite -----------------------------------------------------------------------------------------------


def bad_loss(net: TwoNets) -> dict[str, Tensor]:
    return {**net.losses(), "value": net.losses()["value"] * math.nan}


def bad_gradient(net: TwoNets) -> dict[str, Tensor]:
    """A finite loss whose slope is infinite: the root at 0."""
    return {**net.losses(), "root": (net.critic(OBS) * 0).sum().sqrt()}


@pytest.mark.parametrize(("bad", "what"), [(bad_loss, "loss value"), (bad_gradient, "gradient of critic")])
@pytest.mark.parametrize("name", ["Adam", "Adafactor"])
def test_a_step_that_is_not_finite_is_skipped_and_counted(bad: Any, what: str, name: str) -> None:
    net = TwoNets()
    optim = Optim(net.parts(OptimSpec(name=name, lr=0.01), clip=0.5))
    optim.step(net.losses())
    before = weights(net)
    assert math.isnan(optim.step(bad(net)))
    assert same(weights(net), before)
    assert optim.nan_skips == 1
    clean = copy.deepcopy(net)
    assert math.isfinite(optim.step(net.losses()))  # nothing of the bad gradient is left
    assert not same(weights(net), weights(clean))
    assert all(torch.isfinite(weight).all() for weight in weights(net))
    assert optim.nan_skips == 1


@pytest.mark.parametrize(("bad", "what"), [(bad_loss, "loss value"), (bad_gradient, "gradient of critic")])
def test_a_hundred_skips_in_a_row_end_the_run_and_name_the_culprit(bad: Any, what: str) -> None:
    net = TwoNets()
    optim = Optim(net.parts(OptimSpec(name="Adam")))
    for _ in range(STREAK - 1):
        optim.step(bad(net))
    optim.step(net.losses())  # one good step: the count starts anew
    for _ in range(STREAK - 1):
        optim.step(bad(net))
    with pytest.raises(RunError, match=f"100 gradient steps in a row .* because {what} is not finite"):
        optim.step(bad(net))
    assert optim.nan_skips == 2 * STREAK - 1


# learning rates ---------------------------------------------------------------------------------------------------


def test_linear_to_zero_is_exactly_zero_at_its_frame_and_after() -> None:
    schedule = LrSchedule(LrSpec(name="LinearToZero", frame=300_000), 0.1)
    assert schedule.at(0) == 0.1
    assert schedule.at(75_000) == pytest.approx(0.075)
    assert schedule.at(299_999) > 0
    assert schedule.at(300_000) == schedule.at(10**9) == 0.0


def test_linear_to_min_stops_at_its_share() -> None:
    schedule = LrSchedule(LrSpec(name="LinearToMin", frame=1000, min_factor=0.2), 0.1)
    assert schedule.at(500) == pytest.approx(0.1 * 0.6)
    assert schedule.at(1000) == schedule.at(5000) == pytest.approx(0.02)
    assert LrSchedule(LrSpec(name="LinearToMin", frame=1000), 1.0).at(2000) == pytest.approx(0.1)


def test_set_lr_reaches_every_net_and_every_part_of_it() -> None:
    net = TwoNets()
    optim = Optim(net.parts(OptimSpec(name="AdamW", lr=0.1), lr_spec=LrSpec(name="LinearToZero", frame=100)))
    optim.set_lr(75)
    rates = [part["lr"] for optimiser in optim.optimizers.values() for part in optimiser.param_groups]
    assert rates == pytest.approx([0.025] * 4)  # two nets, each with decayed and spared parameters
    assert optim.lr == pytest.approx(0.025)
    optim.set_lr(100)
    before = weights(net)
    optim.step(net.losses())
    assert same(weights(net), before)


def test_without_a_schedule_the_rate_stays() -> None:
    optim = Optim(TwoNets().parts(OptimSpec(name="Adam", lr=0.1)))
    optim.set_lr(10**9)
    assert optim.lr == 0.1


SCHEDULES: dict[str, dict[str, Any]] = {
    "StepLR": {"step_size": 2, "gamma": 0.5},
    "ExponentialLR": {"gamma": 0.5},
    "CosineAnnealingLR": {"T_max": 10},
    "MultiStepLR": {"milestones": [2, 4]},
    "LinearLR": {},
    "OneCycleLR": {"max_lr": 1.0, "total_steps": 30, "cycle_momentum": False},
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_of_torch_counts_updates_and_goes_on_after_a_restart(name: str) -> None:
    spec = LrSpec(name=name, **SCHEDULES[name])
    schedule, resumed = LrSchedule(spec, 0.8), LrSchedule(spec, 0.8)
    carrier = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.8)
    theirs = vars(torch.optim.lr_scheduler)[name](carrier, **SCHEDULES[name])
    for update in range(8):
        if update == 3:
            resumed.load_state_dict(schedule.state_dict())
        rate = schedule.at(frame=0)
        assert rate == pytest.approx(carrier.param_groups[0]["lr"])
        assert update < 3 or resumed.at(frame=0) == rate
        carrier.step()
        theirs.step()


@pytest.mark.parametrize("name", ["LambdaLR", "ReduceLROnPlateau", "Counter", "LRScheduler"])
def test_schedules_that_plain_values_cannot_make_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match=r"agent\.net\.lr_scheduler_spec\.name: unknown learning rate schedule"):
        LrSchedule(LrSpec(name=name), 0.1)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"name": "LinearToZer0", "frame": 10}, r"name: unknown .* Did you mean 'LinearToZero'\?"),
        ({"name": "LinearToZero"}, r"LinearToZero takes frame \(> 0\); got {}"),
        ({"name": "LinearToZero", "frame": 0}, "LinearToZero takes frame"),
        ({"name": "LinearToZero", "frame": "soon"}, "LinearToZero takes frame"),
        ({"name": "LinearToZero", "frame": 10, "min_factor": 0.1}, "LinearToZero takes frame"),
        ({"name": "LinearToMin", "frame": 10, "min_factor": 2}, r"min_factor \(0 to 1\)"),
        ({"name": "LinearToMin", "frame": 10, "min_factor": "low"}, r"min_factor \(0 to 1\)"),
        ({"name": "StepLR"}, "StepLR: .*step_size"),
        ({"name": "StepLR", "step_size": 2, "gama": 1}, "StepLR: .*gama"),
    ],
)
def test_wrong_schedules_are_refused_in_words(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=r"agent\.net\.lr_scheduler_spec.*" + message):
        LrSchedule(LrSpec(**keys), 0.1)


# names and arguments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"name": "Adamm"}, r"name: unknown optimiser 'Adamm'. Did you mean 'Adam'\? Known: .*RMSprop"),
        ({"name": "LBFGS"}, "name: unknown optimiser 'LBFGS'"),
        ({"name": "Adam", "epss": 1e-5}, r"epss: Adam takes no such argument. Did you mean 'eps'\?"),
    ],
)
def test_wrong_optimisers_are_refused_before_anything_is_built(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=r"agent\.net\.optim_spec\." + message):
        optimizer_kwargs(OptimSpec(**keys))


@pytest.mark.parametrize("keys", [{"eps": -1}, {"betas": 0.9}, {"betas": [0.9, 2]}, {"betas": [0.9]}])
def test_wrong_arguments_of_an_optimiser_are_refused_in_words(keys: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"agent\.net\.optim_spec: Adam: "):
        Optim(TwoNets().parts(OptimSpec(name="Adam", **keys)))


@pytest.mark.parametrize(
    ("name", "kin"), [("GlobalAdam", "Adam"), ("GlobalRMSprop", "RMSprop"), ("Lookahead", "AdamW")]
)
def test_names_of_older_specs_stand_for_their_plain_kin(name: str, kin: str) -> None:
    assert optimizer_class(OptimSpec(name=name)) is vars(torch.optim)[kin]


def test_losses_are_found_by_name() -> None:
    assert isinstance(make_loss(LossSpec(name="SmoothL1Loss", beta=0.5)), nn.SmoothL1Loss)
    with pytest.raises(SpecError, match=r"agent\.net\.loss_spec\.name: unknown loss 'MSEloss'. Did you mean 'MSELoss'"):
        make_loss(LossSpec(name="MSEloss"))
    with pytest.raises(SpecError, match=r"agent\.net\.loss_spec: MSELoss: .*alpha"):
        make_loss(LossSpec(name="MSELoss", alpha=1))


# state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_restored_optimiser_takes_the_very_steps_it_would_have_taken(name: str) -> None:
    spec, lr_spec = OptimSpec(name=name, **OPTIMISERS[name]), LrSpec(name="ExponentialLR", gamma=0.9)
    net, other = TwoNets(), TwoNets()
    optim, restored = Optim(net.parts(spec, 0.5, lr_spec)), Optim(other.parts(spec, 0.5, lr_spec))
    for _ in range(3):
        optim.set_lr(0)
        optim.step(net.losses())
    optim.step(bad_loss(net))
    state = copy.deepcopy({"net": net.state_dict(), "optim": optim.state_dict()})
    restored.step({"noise": 5 * other.losses()["policy"]})  # whatever it did before is gone
    other.load_state_dict(state["net"])
    restored.load_state_dict(state["optim"])
    assert (restored.nan_skips, restored.streak, restored.norms) == (1, 1, optim.norms)
    assert restored.lr == optim.lr
    for _ in range(3):
        for one, nets in ((optim, net), (restored, other)):
            one.set_lr(0)
            one.step(nets.losses())
        assert same(weights(net), weights(other))
