"""Compiled agents do what eager ones do. What would be compiled is traced here and run by torch, without C++."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from run_helpers import CONV, assert_equal, by_content, session, takes, tiny_spec
from torch import Tensor, nn

from slm_lab.agent import Agent, make_agent
from slm_lab.agent.algorithm import ALGORITHMS
from slm_lab.agent.net.gradient_step import GradientStep, Losses, uncompilable
from slm_lab.agent.net.optim import Group, Optim
from slm_lab.agent.plan import plan_agent
from slm_lab.experiment.session import Session
from slm_lab.lib.errors import RunError
from slm_lab.lib.library import Source, trace
from slm_lab.lib.noise import Noise
from slm_lab.lib.rng import Rng
from slm_lab.spec.schema import OptimSpec, Spec
from slm_lab.types import Array, Batch, Metrics, Spaces

KEY = (3, 0, 0)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


class Traced:
    """A function as the operations it was seen to do; what it writes to is changed in place."""

    def __init__(self, source: Source) -> None:
        self.graph, self.names = trace(source)
        self.notes = source.notes

    def __call__(self, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        with torch.no_grad():
            return dict(zip(self.names, self.graph(*tensors), strict=True))


class Tracer:
    """In place of a compiler."""

    def __init__(self) -> None:
        self.made = list[tuple[str, int]]()

    def library(self, name: str, rows: int, make: Callable[[], Source]) -> Any:
        self.made.append((name, rows))
        return Traced(make())


# two agents that live the same life -------------------------------------------------------------------------------


@dataclass
class Pair:
    """An eager agent that steps the envs, and a compiled one that looks on."""

    session: Session
    compiled: Agent
    tracer: Tracer

    @property
    def eager(self) -> Agent:
        return self.session.agent

    def live(self, frames: int) -> list[tuple[Metrics, Metrics]]:
        """Both learn from what the eager one does; what their updates report."""
        env, clock, reports = self.session.env, self.session.clock, list[tuple[Metrics, Metrics]]()
        while clock.frame < frames:
            seen, same = (agent.see(env.obs, env.action_mask) for agent in (self.eager, self.compiled))
            act, like = self.eager.act(seen, clock.frame), self.compiled.act(same, clock.frame)
            assert_close(act._asdict(), like._asdict(), f"frame {clock.frame}: act")
            step = env.step(act.env_action)
            clock.tick(env.spaces.num_envs)
            ours = self.eager.learn(seen, act, step, clock.frame)
            theirs = self.compiled.learn(same, act, step, clock.frame)
            assert (ours is None) == (theirs is None)
            if ours is not None and theirs is not None:
                reports.append((ours, theirs))
        return reports

    def assert_same(self) -> None:
        """Nets, optimiser state, memory with its priorities, random streams, counts of skipped steps."""
        assert_close(state_of(self.eager), state_of(self.compiled))


def pair(spec: Spec) -> Pair:
    one, tracer = session(spec, KEY), Tracer()
    other = make_agent(plan_agent(spec.agent, spec.env.num_envs, []), spec.env, one.env.spaces, KEY)
    other.algorithm.compile(tracer)  # type: ignore[arg-type]
    return Pair(one, other, tracer)


def state_of(agent: Agent) -> Any:
    state = by_content(agent.state_dict())
    optim = state["algorithm"]["optim"]
    if optim:
        optim["optimizers"] = {name: dict(by_number) for name, by_number in optim["optimizers"].items()}
    return state


def assert_close(ours: Any, theirs: Any, path: str = "state") -> None:
    """The same but for the last digits of floats; NaN where NaN is."""
    if isinstance(ours, Mapping):
        assert ours.keys() == theirs.keys(), f"{path}: {list(ours)} and {list(theirs)}"
        for key in ours:
            assert_close(ours[key], theirs[key], f"{path}.{key}")
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs), path
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert_close(a, b, f"{path}[{i}]")
    elif isinstance(ours, float | np.ndarray | Tensor):
        a, b = np.asarray(ours), np.asarray(theirs)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"{path}: {a.dtype}{a.shape} and {b.dtype}{b.shape}"
        if a.dtype.kind == "f":
            np.testing.assert_allclose(b, a, **CLOSE, equal_nan=True, err_msg=path)  # type: ignore[call-overload]
        else:
            assert np.array_equal(a, b), f"{path}: {a} and {b}"
    else:
        assert ours == theirs, f"{path}: {ours!r} and {theirs!r}"


# specs whose numbers move fast ------------------------------------------------------------------------------------


def falling(start: float, end: float) -> dict[str, Any]:
    return {"name": "linear_decay", "start_val": start, "end_val": end, "end_step": 150}


NET: dict[str, Any] = {
    "optim_spec": {"name": "Adam", "lr": 0.02},
    "lr_scheduler_spec": {"name": "LinearToZero", "frame": 200},
}
POLICY_GRADIENT = {"entropy_coef_spec": falling(0.5, 0.0)}
ON_POLICY = {**POLICY_GRADIENT, "clip_eps_spec": falling(0.2, 0.01), "minibatch_size": 24, "training_epoch": 3}
IMITATION = {"sil_min_better": 4, "sil_val_loss_coef": 0.5, "sil_policy_loss_coef": 0.5}
CHANGES: dict[str, dict[str, Any]] = {
    "ActorCritic": POLICY_GRADIENT,
    "PPO": ON_POLICY,
    "PPOSIL": {**ON_POLICY, **IMITATION},
    "Reinforce": POLICY_GRADIENT,
    "SIL": {**POLICY_GRADIENT, **IMITATION},
    "SoftActorCritic": {"entropy_anneal": {"start_ratio": 0.95, "end_ratio": 0.1, "frames": 150}},
}


def spec_of(name: str, env_name: str = "CartPole-v1", /, **sections: Mapping[str, Any]) -> Spec:
    """Schedules fall to their end within the few updates of these tests."""
    given = {
        **sections,
        "algorithm": {**CHANGES.get(name, {}), **sections.get("algorithm", {})},
        "net": {**NET, **sections.get("net", {})},
        "env": {"max_t": 12, **sections.get("env", {})},
    }
    spec: Spec = tiny_spec(name, env_name, **given)
    return spec


def assert_same_life(spec: Spec, frames: int = 150, updates: int = 3) -> Pair:
    both = pair(spec)
    reports = both.live(frames)
    assert len(reports) >= updates
    for i, (ours, theirs) in enumerate(reports):
        assert_close(ours, theirs, f"update {i}")
    both.assert_same()
    return both


# learning ---------------------------------------------------------------------------------------------------------

ENVS = ("CartPole-v1", "Pendulum-v1")
LEARNERS = [name for name, cls in ALGORITHMS.items() if cls.memory_kind is not None]


@pytest.mark.parametrize(("name", "env"), [(name, env) for name in LEARNERS for env in ENVS if takes(name, env)])
def test_every_algorithm_learns_the_same(name: str, env: str) -> None:
    both = assert_same_life(spec_of(name, env))
    functions = {function for function, _ in both.tracer.made}
    assert "act" in functions
    assert len(functions) > 1


PER = {"name": "PrioritizedReplay", "beta_spec": {"start_val": 0.4}}
POLYAK = {"update_type": "polyak", "polyak_coef": 0.2}
CONV_NET: dict[str, Any] = {**CONV, "conv_hid_layers": [[2, 3, 3]]}
VARIANTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "PPO of one net with running scales": (
        *("PPO", "Pendulum-v1"),
        {
            "algorithm": {
                "clip_vloss": True,
                "normalize_v_targets": True,
                "normalize_advantages": "percentile",
                "critic_training_epoch": 5,
            },
            "net": {"shared": True},
        },
    ),
    "PPO with more passes of the value": ("PPO", "CartPole-v1", {"algorithm": {"critic_training_epoch": 5}}),
    "PPO with fewer passes of the value": ("PPO", "CartPole-v1", {"algorithm": {"critic_training_epoch": 1}}),
    "PPO with a sampled entropy": (
        *("PPO", "Pendulum-v1"),
        {"algorithm": {"action_pdtype": "NormalTanh", "symlog": True, "recompute_adv": True}},
    ),
    "PPO with decay and a deviation of its own": (
        *("PPO", "Pendulum-v1"),
        {"net": {"log_std_init": -0.5, "optim_spec": {"name": "AdamW", "lr": 0.02, "weight_decay": 0.5}}},
    ),
    "PPO with RMSprop": (
        *("PPO", "CartPole-v1"),
        {"net": {"optim_spec": {"name": "RMSprop", "lr": 0.005, "momentum": 0.5}}},
    ),
    "PPO with a distribution whose numbers depend on the net": (
        *("PPO", "Pendulum-v1"),
        {"algorithm": {"action_pdtype": "Beta"}},
    ),
    "PPO whose last minibatch is smaller": ("PPO", "CartPole-v1", {"algorithm": {"minibatch_size": 20}}),
    "PPO with images": ("PPO", "task_envs:Catch", {"net": CONV_NET}),
    "PPO with entries": ("PPO", "task_envs:Both", {}),
    "PPO with masks": ("PPO", "task_envs:Masked", {}),
    "PPO with masks of components": ("PPO", "task_envs:MaskedPair", {}),
    "DQN with PER and polyak": (
        *("DQN", "CartPole-v1"),
        {"memory": PER, "net": POLYAK, "algorithm": {"training_iter": 2, "training_batch_iter": 2}},
    ),
    "DQN of a dueling net": ("DQN", "CartPole-v1", {"net": {"type": "DuelingMLPNet", "hid_layers": [8]}}),
    "DQN with SGD": (
        *("DQN", "CartPole-v1"),
        {"net": {"optim_spec": {"name": "SGD", "lr": 0.02, "momentum": 0.9, "nesterov": True}}},
    ),
    "DQN with images": ("DQN", "task_envs:Catch", {"net": CONV_NET}),
    "DQN with entries": ("DQN", "task_envs:Both", {}),
    "DQN with masks": ("DQN", "task_envs:Masked", {}),
    "SoftActorCritic with a given alpha that falls": (
        *("SoftActorCritic", "CartPole-v1"),
        {"algorithm": {"fixed_alpha": 2.0, "alpha_anneal_frames": 150, "policy_delay": 2}},
    ),
    "SoftActorCritic with an entropy penalty": (
        *("SoftActorCritic", "CartPole-v1"),
        {"algorithm": {"entropy_penalty_coef": 5.0}},
    ),
    "SoftActorCritic with alpha at its limits": (
        *("SoftActorCritic", "Pendulum-v1"),
        {"algorithm": {"alpha_lr": 0.5, "log_alpha_min": -0.1, "log_alpha_max": 0.1}},
    ),
    "SoftActorCritic with PER and bounded critics": (
        *("SoftActorCritic", "Pendulum-v1"),
        {"algorithm": {"symlog": True, "spectral_norm": True}, "memory": PER, "net": {"hid_layers": [8, 6]}},
    ),
    "SoftActorCritic with masks": ("SoftActorCritic", "task_envs:Masked", {}),
    "CrossQ past its warm-up": (
        *("CrossQ", "Pendulum-v1"),
        {"net": {"batch_renorm": {"warmup_steps": 5, "momentum": 0.2}}, "algorithm": {"policy_delay": 3}},
    ),
}
"""Algorithm, env and sections that are added to a tiny spec."""


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_is_learnt_by(variant: str) -> None:
    name, env, sections = VARIANTS[variant]
    assert_same_life(spec_of(name, env, **sections))


def test_the_same_is_learnt_by_plain_descent() -> None:
    assert_same_life(spec_of("DQN", net={"optim_spec": {"name": "SGD", "lr": 0.02}}))


def test_the_gradient_norm_of_further_critic_steps_is_that_of_the_last() -> None:
    assert_same_life(spec_of("ActorCritic", algorithm={"critic_training_epoch": 2}))


def test_each_number_of_rows_is_compiled_once() -> None:
    both = assert_same_life(spec_of("PPO", algorithm={"minibatch_size": 20}))
    # 16 steps of 3 envs are two minibatches of 20 and one of 8; 3 envs act
    assert sorted(both.tracer.made) == [("act", 3), ("ppo", 8), ("ppo", 20)]


@pytest.mark.parametrize("name", ["PPO", "DoubleDQN", "SoftActorCritic"])
def test_a_state_that_was_loaded_is_gone_on_from(name: str) -> None:
    both = pair(spec_of(name))
    both.live(60)
    state = copy.deepcopy(both.eager.state_dict())
    both.live(120)
    for agent in (both.eager, both.compiled):
        agent.load_state_dict(copy.deepcopy(state))
    assert both.live(180)
    both.assert_same()


# numbers that are not ---------------------------------------------------------------------------------------------


class Poisoned:
    """A memory whose batches hold NaN."""

    def __init__(self, memory: Any, part: str) -> None:
        self.memory, self.part = memory, part

    def sample(self) -> Batch:
        batch: Batch = self.memory.sample()
        if self.part == "reward":
            return replace(batch, reward=torch.full_like(batch.reward, math.nan))
        assert isinstance(batch.obs, Tensor)
        nothing = torch.full_like(batch.obs, math.nan)
        return replace(batch, obs=nothing, next_obs=nothing.clone() if batch.next_obs is not batch.obs else nothing)

    def feedback(self, batch: Batch, error: Tensor) -> None:
        self.memory.feedback(batch, error)

    def extend(self, rows: Batch) -> None:
        self.memory.extend(rows)

    def __len__(self) -> int:
        return len(self.memory)


class PoisonedBoth(Poisoned):
    """The memory of imitation, with NaN in both of its parts."""

    def __init__(self, memory: Any, part: str) -> None:
        super().__init__(memory, part)
        self.replay, self.finished = Poisoned(memory.replay, part), memory.finished


def poisoned_update(agent: Agent, part: str, frame: int) -> Metrics:
    kind = PoisonedBoth if agent.algorithm.imitates else Poisoned
    return agent.algorithm.update(kind(agent.lessons, part), frame)


def learnt(agent: Agent) -> Any:
    """All that a gradient step changes: parameters and what the optimisers remember."""
    optim = agent.algorithm.optim
    assert optim is not None
    params = {name: [param.detach() for param in part] for name, part in optim.params.items()}
    return copy.deepcopy((params, optim.state_dict()["optimizers"]))


def without_norms(agent: Agent) -> Any:
    state = state_of(agent)
    del state["algorithm"]["optim"]["norms"]
    return state


@pytest.mark.parametrize("part", ["reward", "obs"])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_step_on_what_is_not_finite_is_skipped(name: str, part: str) -> None:
    both = pair(spec_of(name))
    frames = 75
    assert both.live(frames)
    agents = both.eager, both.compiled
    before = [learnt(agent) for agent in agents]
    ours, theirs = (poisoned_update(agent, part, frames) for agent in agents)
    assert_close(ours, theirs, "update")
    assert math.isnan(ours["loss"])
    for agent, was in zip(agents, before, strict=True):
        optim = agent.algorithm.optim
        assert optim is not None
        assert optim.nan_skips > 0
        if part == "obs":  # the policy of soft actor-critic learns without rewards
            assert_equal(learnt(agent), was)
    assert_close(without_norms(both.eager), without_norms(both.compiled))
    if part == "reward":
        assert both.live(frames + 60)
        assert_close(without_norms(both.eager), without_norms(both.compiled))


def test_a_skipped_step_leaves_the_norm_of_the_last_gradient() -> None:
    both = pair(spec_of("DQN"))
    both.live(75)
    norms = list[dict[str, float]]()
    for agent in (both.eager, both.compiled):
        poisoned_update(agent, "reward", 75)
        assert agent.algorithm.optim is not None
        norms.append(agent.algorithm.optim.norms)
    assert norms[1] == pytest.approx(norms[0])


# one step ---------------------------------------------------------------------------------------------------------


class Two(nn.Module):
    """Two numbers, each with an optimiser of its own."""

    def __init__(self, first: float, second: float, lr: float = 0.1, name: str = "SGD") -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.tensor(first)), nn.Parameter(torch.tensor(second))
        spec = OptimSpec.model_validate({"name": name, "lr": lr, **({"momentum": 0.5} if name == "SGD" else {})})
        groups = [Group(name, [param], spec, None, None) for name, param in self.named_parameters()]
        self.optim: Optim = Optim(groups)

    @property
    def numbers(self) -> list[float]:
        return [self.first.item(), self.second.item()]

    def set_lr(self, lr: float) -> None:
        for optimizer in self.optim.optimizers.values():
            optimizer.param_groups[0]["lr"] = lr


def rows(count: int, value: float = 1.0) -> Batch:
    one, never = torch.full((count,), value), torch.zeros(count, dtype=torch.bool)
    return Batch(one[:, None], one, one, one[:, None], never, never)


def step_of(two: Two, loss: Callable[..., Losses], compiled: bool, only: Sequence[str] | None = None) -> GradientStep:
    step = GradientStep("test", loss, two.optim, only)
    if compiled:
        step.compile(Tracer(), two)  # type: ignore[arg-type]
    return step


@pytest.mark.parametrize("compiled", [False, True])
def test_knobs_learning_rates_and_batches_may_change_from_step_to_step(compiled: bool) -> None:
    two = Two(0.0, 0.0)

    def loss(batch: Batch, noise: Noise, slope: float) -> Losses:
        return {"a": slope * two.first * batch.reward.mean(), "b": 2 * two.second}, {"slope": two.first * 0 + slope}

    step, noise = step_of(two, loss, compiled), Rng(0).noise
    assert step(rows(4), noise, slope=1.0)["slope"].item() == 1
    step(rows(4), noise, slope=2.0)
    two.set_lr(0.5)
    assert step(rows(3, -1.0), noise, slope=3.0)["slope"].item() == 3
    # slopes 1, 2, -3 make a momentum of 1, 2.5, -1.75 and lead to -.1, -.35, .525; slopes of 2 one of 2, 3, 3.5
    assert two.numbers == pytest.approx([0.525, -2.25])
    # 0, then 2 * -.1 + 2 * -.2, then 3 * .35 + 2 * -.5
    assert step.losses() == pytest.approx([0.0, -0.6, 0.05])
    assert step.losses() == []


@pytest.mark.parametrize("compiled", [False, True])
def test_only_the_nets_that_are_named_step(compiled: bool) -> None:
    two = Two(1.0, 1.0)

    def loss(batch: Batch, noise: Noise) -> Losses:
        return {"both": two.first * two.second}, {}

    step = step_of(two, loss, compiled, ("second",))
    step(rows(2), Rng(0).noise)
    assert two.numbers == pytest.approx([1.0, 0.9])
    step.losses()
    assert two.optim.norms == {"second": 1.0}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_where_one_gradient_is_not_finite_no_net_steps_though_the_loss_is(name: str, compiled: bool) -> None:
    two = Two(0.0, 1.0, name=name)

    def loss(batch: Batch, noise: Noise) -> Losses:
        # the slope of a root at 0 has no end
        return {"root": (two.first * batch.reward.mean()).sqrt(), "square": two.second**2}, {}

    step = step_of(two, loss, compiled)
    step(rows(2), Rng(0).noise)
    assert two.numbers == [0.0, 1.0]
    assert math.isnan(step.losses()[0])
    assert (two.optim.nan_skips, two.optim.streak) == (1, 1)
    step(rows(2, 0.0), Rng(0).noise)  # nor is 0 times infinity a number
    assert math.isnan(step.losses()[0])
    with torch.no_grad():
        two.first.fill_(4.0)
    step(rows(2), Rng(0).noise)
    # Adam's first step is as long as its learning rate; slopes 1 / 4 and 2
    assert two.numbers == pytest.approx([3.9, 0.9] if name == "Adam" else [3.975, 0.8])
    assert step.losses() == pytest.approx([3.0])
    assert (two.optim.nan_skips, two.optim.streak) == (2, 0)


def test_noise_comes_from_the_stream_in_the_order_it_is_asked_for() -> None:
    streams, found = (Rng(1), Rng(1)), list[dict[str, Tensor]]()
    for compiled, rng in zip((False, True), streams, strict=True):
        two = Two(0.0, 0.0)

        def loss(batch: Batch, noise: Noise, two: Two = two) -> Losses:
            normal, uniform = noise.normal(batch.reward), noise.uniform(batch.obs)  # type: ignore[arg-type]
            return {"a": two.first + two.second}, {"normal": normal, "uniform": uniform}

        step = step_of(two, loss, compiled)
        found += [step(rows(3), rng.noise) for _ in range(2)]
    for ours, theirs in zip(found[:2], found[2:], strict=True):
        assert torch.equal(ours["normal"], theirs["normal"])
        assert torch.equal(ours["uniform"], theirs["uniform"])
    assert torch.equal(streams[0].torch.get_state(), streams[1].torch.get_state())


def test_an_optimiser_without_a_compiled_form_is_refused_and_said_to_be() -> None:
    assert uncompilable(Two(0.0, 0.0).optim) is None
    other = Two(0.0, 0.0, name="Adagrad")
    assert uncompilable(other.optim) == "Adagrad with its options has no compiled form"
    with pytest.raises(RunError, match="Adagrad with these options has no compiled form"):
        step_of(other, lambda batch, noise: ({"a": other.first}, {}), compiled=True)


# acting -----------------------------------------------------------------------------------------------------------

RULES = ("default", "random", "epsilon_greedy", "boltzmann")
NVEC = (2, 3)
SPACES = {
    "discrete": Spaces((3,), np.dtype(np.float32), "discrete", 4, 5),
    "multi_discrete": Spaces((3,), np.dtype(np.float32), "multi_discrete", 2, 5, NVEC),
    "multi_binary": Spaces((3,), np.dtype(np.float32), "multi_binary", 3, 5),
    "continuous": Spaces((3,), np.dtype(np.float32), "continuous", 2, 5),
}
MASKS = {"discrete": 4, "multi_discrete": 5}
CASES = [
    *((name, "discrete", rule, pdtype) for name in ("DQN", "SARSA") for rule in RULES for pdtype in ("Argmax",)),
    *(("DQN", "discrete", rule, "Categorical") for rule in RULES),
    *(("PPO", kind, rule, "default") for kind in SPACES for rule in RULES),
    *(("PPO", "continuous", "default", p) for p in ("NormalTanh", "Beta", "LogNormal", "Gumbel")),
    *(("SoftActorCritic", kind, "default", "default") for kind in ("discrete", "continuous")),
    *(("CrossQ", kind, "default", "default") for kind in ("discrete", "continuous")),
]


def actors(name: str, kind: str, rule: str, pdtype: str, masked: bool) -> tuple[Agent, Agent]:
    """An eager agent, and a compiled one."""
    space = replace(SPACES[kind], mask_size=MASKS[kind]) if masked else SPACES[kind]
    keys: dict[str, Any] = {"action_policy": rule, "action_pdtype": pdtype, "explore_var_spec": falling(1.0, 0.05)}
    spec = spec_of(name, algorithm=keys)
    plan = plan_agent(spec.agent, 5, [])
    first, second = (make_agent(plan, spec.env, space, KEY) for _ in range(2))
    second.algorithm.compile(Tracer())  # type: ignore[arg-type]
    return first, second


def masks(rng: np.random.Generator, kind: str) -> Array:
    """Which actions are allowed [5, n]; the first of each component always is."""
    mask = rng.random((5, MASKS[kind])) < 0.5
    mask[:, 0] = True
    if kind == "multi_discrete":
        mask[:, NVEC[0]] = True
    return mask


def assert_act_alike(first: Agent, second: Agent, kind: str, masked: bool) -> None:
    rng, actions = np.random.default_rng(0), list[Any]()
    for frame in range(0, 180, 15):
        obs = rng.normal(size=(5, 3)).astype(np.float32)
        mask = masks(rng, kind) if masked else None
        ours, theirs = (agent.act(agent.see(obs, mask), frame) for agent in (first, second))
        assert_close(ours._asdict(), theirs._asdict(), f"frame {frame}")
        actions.append(ours.env_action)
    assert np.std(actions) > 0
    assert_close(first.rng.state_dict(), second.rng.state_dict(), "stream")


@pytest.mark.parametrize(("name", "kind", "rule", "pdtype"), CASES)
def test_actions_are_the_same(name: str, kind: str, rule: str, pdtype: str) -> None:
    assert_act_alike(*actors(name, kind, rule, pdtype, masked=False), kind, masked=False)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("rule", RULES)
def test_actions_out_of_those_allowed_are_the_same(kind: str, rule: str) -> None:
    assert_act_alike(*actors("PPO", kind, rule, "default", masked=True), kind, masked=True)


def test_actions_for_another_number_of_envs_are_the_same() -> None:
    first, second = actors("PPO", "discrete", "default", "default", masked=False)
    for count in (5, 2, 5):
        obs = np.ones((count, 3), np.float32)
        ours, theirs = (agent.decide(obs, Rng(7)) for agent in (first, second))
        assert ours.action.shape == (count,)
        assert np.array_equal(ours.action, theirs.action)
