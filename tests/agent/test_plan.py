from __future__ import annotations

from typing import Any

import own_components
import pytest
import torch
from specs_for_tests import AGENTS, tiny_session, tiny_spec

from slm_lab.agent.algorithm import ALGORITHMS
from slm_lab.agent.algorithm.crossq import CrossQ
from slm_lab.agent.algorithm.soft_actor_critic import SoftActorCritic
from slm_lab.agent.plan import AgentPlan, plan_agent, split_by_net
from slm_lab.lib.errors import SpecError


def plan(name: str, notes: list[str] | None = None, /, **overrides: Any) -> AgentPlan:
    spec = tiny_spec(name, **overrides)
    return plan_agent(spec.agent, spec.env.num_envs, [] if notes is None else notes)


def test_there_is_a_tiny_spec_of_every_algorithm() -> None:
    assert AGENTS.keys() == ALGORITHMS.keys()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_good_spec_has_nothing_to_remark(name: str) -> None:
    notes = list[str]()
    assert plan(name, notes).algorithm is ALGORITHMS[name]
    assert notes == []


# actor and critic -------------------------------------------------------------------------------------------------


def test_keys_of_one_net_hold_for_it_alone_whatever_their_order() -> None:
    actor, critic = split_by_net(
        {"critic_hid_layers": [8], "type": "MLPNet", "hid_layers": [4], "actor_clip_grad_val": 0.5, "clip_grad_val": 1}
    )
    assert actor == {"type": "MLPNet", "hid_layers": [4], "clip_grad_val": 0.5}
    assert critic == {"type": "MLPNet", "hid_layers": [8], "clip_grad_val": 1}


def test_a_prefix_before_no_key_is_an_unknown_key() -> None:
    with pytest.raises(SpecError, match=r"agent\.net\.actor_hid_layer: unknown key"):
        plan("PPO", **{"agent.net.actor_hid_layer": [4]})


def built(name: str, **keys: Any) -> Any:
    """An algorithm on CartPole whose critics, if it can have a section for them, have none."""
    if ALGORITHMS[name].takes_critic_net:
        keys["agent.critic_net"] = None
    if name == "CrossQ":
        keys["agent.net.batch_renorm"] = None  # whose parameters would come first
    return tiny_session(tiny_spec(name, **keys)).agent.algorithm


def nets_of(algorithm: Any) -> list[Any]:
    """The net of the policy, then those of its critics; one net where they share it."""
    learner = algorithm.learner
    if isinstance(algorithm, SoftActorCritic | CrossQ):
        return [learner.policy.net, learner.critics.q1, learner.critics.q2]
    return [learner.net.actor] if learner.net.critic is None else [learner.net.actor, learner.net.critic]


@pytest.mark.parametrize("name", [name for name, cls in ALGORITHMS.items() if cls.has_critic])
def test_actor_and_critic_are_built_from_their_own_keys(name: str) -> None:
    algorithm = built(
        name,
        **{
            "agent.net.critic_hid_layers": [7],
            "agent.net.actor_optim_spec": {"name": "SGD", "lr": 0.5},
            "agent.net.critic_clip_grad_val": 0.1,
        },
    )
    actor, *critics = nets_of(algorithm)
    assert next(actor.parameters()).shape == (16, 4)
    assert [next(critic.parameters()).shape for critic in critics] == [(7, 4)] * len(critics)
    optim, names = algorithm.optim, ["q1", "q2"] if len(critics) == 2 else ["critic"]
    assert isinstance(optim.optimizers["actor"], torch.optim.SGD)
    assert all(isinstance(optim.optimizers[critic], torch.optim.Adam) for critic in names)
    assert [optim.lr_of(net) for net in ("actor", *names)] == [0.5, *[0.01] * len(names)]
    clips = {group.name: group.clip for group in optim.groups}
    assert [clips[net] for net in ("actor", *names)] == [None, *[0.1] * len(names)]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", [name for name, cls in ALGORITHMS.items() if cls.has_critic])
def test_init_stds_reach_the_weights_of_both_heads(name: str, shared: bool) -> None:
    keys = {"agent.net.actor_init_std": 0.01, "agent.net.critic_init_std": 1.0, "agent.net.shared": shared}
    heads = [head for net in nets_of(built(name, **keys)) for head in net.net.heads]
    policy, *values = (head.weight.detach() for head in heads)
    torch.testing.assert_close(policy @ policy.T, 1e-4 * torch.eye(2))
    assert values
    for value in values:
        torch.testing.assert_close(value @ value.T, torch.eye(len(value)))


def test_the_critic_takes_the_actors_optimiser_where_asked() -> None:
    keys = {
        "agent.net.actor_optim_spec": {"name": "SGD", "lr": 0.5},
        "agent.net.critic_optim_spec": {"name": "RMSprop", "lr": 0.1},
        "agent.net.actor_lr_scheduler_spec": {"name": "LinearToZero", "frame": 100},
    }
    apart, same = plan("PPO", **keys).nets, plan("PPO", **keys, **{"agent.net.use_same_optim": True}).nets
    assert apart is not None
    assert same is not None
    assert apart.critic is not None
    assert same.critic is not None
    assert (apart.critic.optim_spec.name, apart.critic.lr_scheduler_spec) == ("RMSprop", None)
    assert same.critic.optim_spec == same.actor.optim_spec
    assert same.critic.lr_scheduler_spec == same.actor.lr_scheduler_spec
    assert same.actor.optim_spec.name == "SGD"


# notes ------------------------------------------------------------------------------------------------------------


def test_inert_keys_are_noted_once_though_two_nets_read_them() -> None:
    notes = list[str]()
    keys = {"agent.net.cuda_id": 0, "agent.algorithm.clip_val_loss": True, "agent.algorithm.training_frequency": 5}
    plan("PPO", notes, **keys)
    assert sorted(note.split(":")[0] for note in notes) == [
        "agent.algorithm.clip_val_loss",
        "agent.algorithm.training_frequency",
        "agent.net.cuda_id",
    ]


def test_keys_of_a_target_net_are_noted_where_there_is_none() -> None:
    notes = list[str]()
    plan("ActorCritic", notes, **{"agent.net.polyak_coef": 0.1, "agent.net.update_type": "polyak"})
    assert sorted(notes) == [
        "agent.net.polyak_coef: there is no target net in ActorCritic; ignored.",
        "agent.net.update_type: there is no target net in ActorCritic; ignored.",
    ]


def test_keys_of_a_critic_are_noted_where_there_is_none() -> None:
    notes = list[str]()
    plan("Reinforce", notes, **{"agent.net.shared": True, "agent.critic_net": {"type": "MLPNet"}})
    assert sorted(notes) == [
        "agent.critic_net: Reinforce takes none; ignored.",
        "agent.net.shared: there is no critic in Reinforce; ignored.",
    ]


def test_a_deviation_for_discrete_actions_is_noted_by_the_agent() -> None:
    session = tiny_session(tiny_spec("PPO", **{"agent.net.log_std_init": 0.0}))
    assert session.agent.algorithm.notes == [
        "agent.net.log_std_init: the action distribution has no deviation; ignored."
    ]
    assert tiny_session(tiny_spec("PPO", "Pendulum-v1", **{"agent.net.log_std_init": 0.0})).agent.algorithm.notes == []


# refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, cls in ALGORITHMS.items() if cls.memory_kind == "on_policy"])
def test_an_on_policy_algorithm_refuses_a_replay_memory(name: str) -> None:
    with pytest.raises(SpecError, match=r"agent\.memory\.name: 'own_components:OffPolicy' does not fit: .* on-policy"):
        plan(name, **{"agent.memory.name": "own_components:OffPolicy"})


@pytest.mark.parametrize("name", [name for name, cls in ALGORITHMS.items() if cls.memory_kind == "replay"])
def test_an_algorithm_that_replays_refuses_a_rollout(name: str) -> None:
    with pytest.raises(SpecError, match=r"agent\.memory\.name: 'OnPolicyReplay' does not fit: .* replay memory"):
        plan(name, **{"agent.memory.name": "OnPolicyReplay"})


def test_a_minibatch_larger_than_the_batch_is_refused() -> None:
    keys = {"agent.algorithm.time_horizon": 8, "num_envs": 4}
    plan("PPO", **keys, **{"agent.algorithm.minibatch_size": 32})
    with pytest.raises(SpecError, match=r"minibatch_size: 33 is larger than the batch: .* = 32\."):
        plan("PPO", **keys, **{"agent.algorithm.minibatch_size": 33})
    plan("PPO", **keys, **{"agent.algorithm.minibatch_size": 33, "agent.algorithm.num_unrolls": 2})
    # a number of episodes says nothing of rows
    plan("PPO", **keys, **{"agent.algorithm.minibatch_size": 33, "agent.memory.name": "OnPolicyReplay"})


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        (
            "PPO",
            "agent.algorithm.name",
            "PPPO",
            r"agent\.algorithm\.name: unknown algorithm 'PPPO'. Did you mean 'PPO'",
        ),
        ("PPO", "agent.algorithm.name", 3, r"agent\.algorithm\.name: unknown algorithm 3"),
        ("PPO", "agent.memory.name", "OnPolicyReply", r"memory 'OnPolicyReply'. Did you mean 'OnPolicyReplay'"),
        ("PPO", "agent.net.type", "MLP", r"agent\.net\.type: unknown net 'MLP'. Did you mean 'MLPNet'"),
        ("PPO", "agent.algorithm.lamb", 0.9, r"agent\.algorithm\.lamb: unknown key. Did you mean 'lam'"),
        ("PPO", "agent.algorithm.gamma", 1.5, r"agent\.algorithm\.gamma: got 1.5"),
        ("PPO", "agent.memory.size", 3, r"agent\.memory\.size: unknown key"),
        ("PPO", "agent.net.optim_spec", {"name": "Adm"}, r"agent\.net\.optim_spec\.name: .*Did you mean 'Adam'"),
        ("PPO", "agent.net.loss_spec", {"name": "Huber"}, r"agent\.net\.loss_spec\.name: .*Did you mean 'HuberLoss'"),
        ("PPO", "agent.net.lr_scheduler_spec", {"name": "StpLR"}, r"lr_scheduler_spec\.name: .*Did you mean 'StepLR'"),
        ("ActorCritic", "agent.algorithm.training_frequency", None, r"training_frequency: missing key"),
        ("Reinforce", "agent.algorithm.training_frequency", 0, r"training_frequency: got 0"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_built(name: str, path: str, value: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        plan(name, **{path: value})


@pytest.mark.parametrize("key", ["time_horizon", "gamma", "lam", "clip_eps_spec", "training_epoch"])
def test_ppo_says_which_key_is_missing(key: str) -> None:
    spec = tiny_spec("PPO")
    algorithm = {k: v for k, v in spec.agent.algorithm.items() if k != key}
    with pytest.raises(SpecError, match=rf"agent\.algorithm\.{key}: missing key"):
        plan_agent(spec.agent.model_copy(update={"algorithm": algorithm}), 4, [])


def test_policies_refuse_a_distribution_without_gradient() -> None:
    with pytest.raises(SpecError, match=r"agent\.algorithm\.action_pdtype: 'Argmax' has no gradient"):
        tiny_session(tiny_spec("Reinforce", **{"agent.algorithm.action_pdtype": "Argmax"}))


def test_a_distribution_for_other_actions_is_refused_with_what_fits() -> None:
    with pytest.raises(
        SpecError, match=r"action_pdtype: unknown distribution for discrete actions 'Normal'.*Categorical"
    ):
        tiny_session(tiny_spec("PPO", **{"agent.algorithm.action_pdtype": "Normal"}))


# a user's own components ------------------------------------------------------------------------------------------


def test_own_algorithm_net_and_memory_run_by_name() -> None:
    spec = tiny_spec(
        "Reinforce",
        **{
            "agent.algorithm": {"name": "own_components:Greedy", "gamma": 0.9, "patience": 8},
            "agent.memory": {"name": "own_components:Counting"},
            "agent.net": {"type": "own_components:LinearNet", "scale": 0.5},
            "max_frame": 160,
        },
    )
    session = tiny_session(spec)
    session.run()
    agent = session.agent
    assert isinstance(agent.algorithm, own_components.Greedy)
    assert isinstance(agent.memory, own_components.Counting)
    assert agent.memory.count == 40  # 160 frames of 4 envs
    assert session.clock.opt_step == 5
    actor = agent.algorithm.learner.net.actor.net
    assert isinstance(actor, own_components.LinearNet)
    assert actor.scale == 0.5


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("agent.algorithm.name", "no_such_module:Thing", r"cannot import 'no_such_module' of 'no_such_module:Thing'"),
        ("agent.algorithm.name", "own_components:Greedi", r"module 'own_components' has no 'Greedi'. .*'Greedy'"),
        ("agent.algorithm.name", "own_components:LinearNet", r"expected a subclass of .*Algorithm"),
        ("agent.algorithm.name", "own_components:not_a_class", r"expected a subclass of .*Algorithm"),
        ("agent.memory.name", "own_components:Greedy", r"agent\.memory\.name: .*expected a subclass of .*MemoryBase"),
        ("agent.net.type", "own_components:Counting", r"agent\.net\.type: .*expected a subclass of .*Net"),
        ("agent.net.type", "own_components:", r"agent\.net\.type: "),
    ],
)
def test_names_of_own_components_that_do_not_fit_are_refused(path: str, value: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        plan("PPO", **{path: value})


def test_own_components_check_their_own_keys() -> None:
    with pytest.raises(SpecError, match=r"agent\.algorithm\.patience: missing key"):
        plan("Reinforce", **{"agent.algorithm": {"name": "own_components:Greedy", "gamma": 0.9}})


def test_critic_net_describes_the_critics_and_says_which_keys_of_net_it_leaves_without_effect() -> None:
    notes = list[str]()
    spec = tiny_spec("CrossQ", **{"agent.net.critic_hid_layers": [3], "agent.net.critic_init_std": 1.0})
    nets = plan_agent(spec.agent, spec.env.num_envs, notes).nets
    assert nets is not None
    assert nets.critic is not None
    assert nets.critic.model_dump()["hid_layers"] == [32]
    assert notes == ["agent.net.critic_hid_layers: agent.critic_net describes the critics; ignored."]


def test_recurrent_nets_of_different_sequences_are_refused() -> None:
    net = {"type": "RecurrentNet", "rnn_hidden_size": 4, "seq_len": 8, "critic_seq_len": 4}
    with pytest.raises(SpecError, match=r"agent\.net\.seq_len: .*seq_len"):
        plan("PPO", **{"agent.net": net})
