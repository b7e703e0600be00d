"""What tests of whole runs share: tiny specs, sessions, comparisons, and the command line in a process of its own."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
import torch
from loguru import logger

from slm_lab.agent.algorithm import ALGORITHMS
from slm_lab.agent.plan import plan_agent
from slm_lab.experiment import checkpoint
from slm_lab.experiment.control import RunOptions, RunResult
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.run import run
from slm_lab.experiment.server import PRELOAD
from slm_lab.experiment.session import Options, Session
from slm_lab.experiment.worker import SIGNALS
from slm_lab.spec.load import from_mapping
from slm_lab.spec.schema import Spec
from slm_lab.types import Rows

torch.set_num_threads(1)  # tests share few cores

NEVER = 1e9  # seconds between checkpoints: none but the last
TIMES = ["fps", "wall_t"]
BATCH = {"name": "OnPolicyBatchReplay"}
EPISODES = {"name": "OnPolicyReplay"}
LAYERS: dict[str, Any] = {"type": "MLPNet", "hid_layers": [8]}
NET: dict[str, Any] = {
    "hid_layers_activation": "tanh",
    "clip_grad_val": 0.5,
    "optim_spec": {"name": "Adam", "lr": 3e-3},
    "lr_scheduler_spec": {"name": "LinearToZero", "frame": 100_000},
}
COMMON = {
    "gamma": 0.97,
    "entropy_coef_spec": {"name": "linear_decay", "start_val": 0.01, "end_val": 0, "end_step": 999},
}
EPSILON = {"name": "linear_decay", "start_val": 1.0, "end_val": 0.05, "end_step": 200}
Q_LEARNING = {"explore_var_spec": EPSILON, "gamma": 0.97, "training_frequency": 6, "training_start_step": 20}
SOFT = {"gamma": 0.97, "training_frequency": 6, "training_iter": 2, "training_start_step": 30}
IMITATION = {"sil_policy_loss_coef": 0.1, "sil_val_loss_coef": 0.01, "training_iter": 2}
CONTINUOUS = ("Pendulum-v1", "Hopper-v5")
ALGORITHM_SPECS: dict[str, dict[str, Any]] = {
    "ActorCritic": {**COMMON, "lam": 0.9, "training_frequency": 16, "normalize_v_targets": True},
    "PPO": {
        **COMMON,
        "lam": 0.9,
        "clip_eps_spec": {"start_val": 0.2},
        "time_horizon": 16,
        "minibatch_size": 20,
        "training_epoch": 2,
        "normalize_advantages": "percentile",
    },
    "Random": {},
    "Reinforce": {**COMMON, "training_frequency": 16},
    "CrossQ": {**SOFT, "policy_delay": 2},
    "DQN": Q_LEARNING,
    "DoubleDQN": Q_LEARNING,
    "SARSA": {"action_policy": "epsilon_greedy", "explore_var_spec": EPSILON, "gamma": 0.97, "training_frequency": 16},
    "SoftActorCritic": {**SOFT, "entropy_anneal": {"start_ratio": 0.6, "end_ratio": 0.2, "frames": 300}},
    "VanillaDQN": Q_LEARNING,
}
ALGORITHM_SPECS["SIL"] = {**ALGORITHM_SPECS["ActorCritic"], **IMITATION}
ALGORITHM_SPECS["PPOSIL"] = {**ALGORITHM_SPECS["PPO"], **IMITATION}
SMALL = {"batch_size": 16, "max_size": 90}  # goes round more than once in 300 frames
MEMORIES: dict[str, dict[str, Any]] = {
    "CrossQ": {"name": "Replay", **SMALL},
    "DQN": {"name": "Replay", **SMALL},
    "DoubleDQN": {"name": "PrioritizedReplay", **SMALL, "beta_spec": {"start_val": 0.4}},
    "PPOSIL": {"sil_replay_name": "PrioritizedReplay", **SMALL, "beta_spec": 0.1},
    "SIL": {"sil_replay_name": "Replay", **SMALL},
    "SoftActorCritic": {"name": "Replay", **SMALL},
    "VanillaDQN": {"name": "Replay", **SMALL, "use_cer": True},
}
NETS: dict[str, dict[str, Any]] = {
    "CrossQ": {"batch_renorm": {"warmup_steps": 20}},
    "DQN": {"update_frequency": 50},
    "DoubleDQN": {"update_type": "polyak", "polyak_coef": 0.1},
    "SoftActorCritic": {"update_type": "polyak", "polyak_coef": 0.1},
}
"""What an algorithm needs beside a rollout memory and a plain net."""
GRU: dict[str, Any] = {"type": "RecurrentNet", "fc_hid_layers": [6], "rnn_hidden_size": 5, "seq_len": 4}
LSTM: dict[str, Any] = {**GRU, "cell_type": "LSTM", "rnn_num_layers": 2}
CONV: dict[str, Any] = {
    "type": "ConvNet",
    "conv_hid_layers": [[4, 3, 2], [4, 3]],
    "fc_hid_layers": [8],
    "normalize": True,
}
NORMALIZED: dict[str, Any] = {"normalize_obs": True}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "PPO with an LSTM": ("PPO", "CartPole-v1", {"net": LSTM}),
    "PPO with a shared GRU": ("PPO", "CartPole-v1", {"net": {**GRU, "shared": True}}),
    "PPO with a GRU, normalised": ("PPO", "CartPole-v1", {"net": GRU, "env": NORMALIZED}),
    "ActorCritic with a GRU": ("ActorCritic", "CartPole-v1", {"net": GRU}),
    "Reinforce with a GRU": ("Reinforce", "CartPole-v1", {"net": GRU}),
    "SARSA with a GRU": ("SARSA", "CartPole-v1", {"net": GRU}),
    "DQN with an LSTM": ("DQN", "CartPole-v1", {"net": LSTM}),
    "DQN with a GRU, normalised": ("DQN", "CartPole-v1", {"net": GRU, "env": NORMALIZED}),
    "DoubleDQN and PER with a GRU": ("DoubleDQN", "CartPole-v1", {"net": GRU}),
    "SoftActorCritic with a GRU": ("SoftActorCritic", "CartPole-v1", {"net": GRU}),
    "SoftActorCritic with a GRU, continuous": ("SoftActorCritic", "Pendulum-v1", {"net": GRU}),
    "PPO with images": ("PPO", "task_envs:Catch", {"net": CONV}),
    "DQN with images": ("DQN", "task_envs:Catch", {"net": CONV}),
    "PPO with entries": ("PPO", "task_envs:Both", {}),
    "DQN with entries": ("DQN", "task_envs:Both", {}),
    "PPO with masks": ("PPO", "task_envs:Masked", {}),
    "DQN with masks": ("DQN", "task_envs:Masked", {}),
    "PPO with entries and a GRU": ("PPO", "task_envs:Both", {"net": GRU}),
    "DoubleDQN and PER with masks and a GRU": ("DoubleDQN", "task_envs:MaskedEntry", {"net": GRU}),
}
"""Nets with a memory, images, several entries and allowed actions: algorithm, env and sections of a tiny spec."""


def takes(algorithm: str, env_name: str) -> bool:
    """Whether an algorithm can act in an env of these tests."""
    return ("continuous" if env_name in CONTINUOUS else "discrete") in ALGORITHMS[algorithm].actions


def tiny(algorithm_name: str = "PPO", env_name: str = "CartPole-v1", **sections: Mapping[str, Any]) -> dict[str, Any]:
    """A spec of three envs that trains in a moment; `sections` add to or replace keys of algorithm, memory, net, ..."""
    normalized = {"normalize_obs": True, "normalize_reward": True} if env_name in CONTINUOUS else {}
    layers = {} if "type" in sections.get("net", {}) else LAYERS  # a net of another type has keys of its own
    parts: dict[str, dict[str, Any]] = {
        "algorithm": {"name": algorithm_name, **ALGORITHM_SPECS[algorithm_name]},
        "memory": {} if algorithm_name == "Random" else {**BATCH, **MEMORIES.get(algorithm_name, {})},
        "net": {} if algorithm_name == "Random" else {**layers, **NET, **NETS.get(algorithm_name, {})},
        "env": {"name": env_name, "num_envs": 3, "max_frame": 300, "max_t": 50, "vectorization": "sync", **normalized},
        "meta": {"max_session": 1, "max_trial": 1, "log_frequency": 60, "eval_frequency": 60, "random_seed": 3},
    }
    for section, keys in sections.items():
        parts[section] |= keys
    agent = {"name": algorithm_name, "algorithm": parts["algorithm"], "memory": parts["memory"], "net": parts["net"]}
    return {"name": "tiny", "agent": agent, "env": parts["env"], "meta": parts["meta"]}


def tiny_spec(algorithm_name: str = "PPO", env_name: str = "CartPole-v1", **sections: Mapping[str, Any]) -> Spec:
    return from_mapping(tiny(algorithm_name, env_name, **sections), "tiny").spec


def write_spec(folder: Path, data: Mapping[str, Any], name: str = "tiny") -> Path:
    """A spec file that holds one spec."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({name: dict(data)}))
    return path


def session(
    spec: Spec, key: tuple[int, int, int] = (3, 0, 0), folder: Path | None = None, every: float = NEVER, **options: Any
) -> Session:
    """A session of a spec; with `folder` it writes its files there."""
    paths = None
    if folder is not None:
        paths = Paths(folder, spec.name).for_session(0)
        paths.make_folders()
    return Session(spec, plan_agent(spec.agent, spec.env.num_envs, []), key, paths, Options(every, **options))


def files_of(one: Session) -> Paths:
    """Where a session writes."""
    assert one.paths is not None
    return one.paths


def state_of(one: Session) -> dict[str, Any]:
    """Everything a session is, but for how long it took."""
    state = checkpoint.gather(one.parts())
    del state["clock"]["wall_t"]
    return {**by_content(state), "obs": one.env.obs}


def by_content(value: Any) -> Any:
    """A state whose Rows are what they hold, so that they can be compared."""
    if isinstance(value, Rows):
        parts = [part for _, part in value.parts(value.start)]
        columns = {key: np.concatenate([part[key] for part in parts]) for key in (parts[0] if parts else {})}
        return {"rows": value.name, "start": value.start, "stop": value.stop, "columns": columns}
    if isinstance(value, Mapping):
        return {key: by_content(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(by_content(item) for item in value)
    return value


def assert_equal(left: Any, right: Any, path: str = "state") -> None:
    """Bit-equal, types and NaN included, however deeply nested."""
    assert type(left) is type(right), f"{path}: {type(left)} and {type(right)}"
    if isinstance(left, Mapping):
        assert list(left) == list(right), f"{path}: keys {list(left)} and {list(right)}"
        for key in left:
            assert_equal(left[key], right[key], f"{path}.{key}")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), f"{path}: {len(left)} and {len(right)} entries"
        for i, (a, b) in enumerate(zip(left, right, strict=True)):
            assert_equal(a, b, f"{path}[{i}]")
    elif isinstance(left, np.ndarray | torch.Tensor):
        a, b = np.asarray(left), np.asarray(right)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"{path}: {a.dtype}{a.shape} and {b.dtype}{b.shape}"
        assert a.tobytes() == b.tobytes(), f"{path}: {a} and {b}"
    else:
        assert left == right or (left != left and right != right), f"{path}: {left!r} and {right!r}"


def read_table(path: Path) -> pd.DataFrame:
    """A table without its time columns."""
    return pd.read_csv(path).drop(columns=TIMES)


def tables(folder: Path) -> dict[str, pd.DataFrame]:
    """Every table of a run by file name, without time columns."""
    return {path.name: read_table(path) for path in sorted((folder / "info").glob("*_df_*.csv"))}


def assert_same_results(left: Path, right: Path) -> None:
    """Equal tables, metrics and best policies of two run folders."""
    ours, theirs = tables(left), tables(right)
    assert list(ours) == list(theirs)
    assert ours
    for name in ours:
        pd.testing.assert_frame_equal(ours[name], theirs[name], check_exact=True)
    for path in sorted((left / "info").glob("*_metrics*.json")):
        assert path.read_text() == (right / "info" / path.name).read_text(), path.name
    best = sorted((left / "model").glob("*_ckpt-best.safetensors"))
    assert best
    for path in best:
        assert_equal(checkpoint.load(path), checkpoint.load(right / "model" / path.name), path.name)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Time of change and bytes of every file below a folder."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def run_tiny(data_dir: Path, data: Mapping[str, Any], mode: str = "train", **options: Any) -> RunResult:
    """Run a spec in this process."""
    return run(data, mode=mode, options=RunOptions(data_dir, checkpoint_every=NEVER, **options))


def only_run(data_dir: Path) -> Path:
    """The one run folder there is."""
    (folder,) = data_dir.iterdir()
    return folder


@pytest.fixture(autouse=True)
def no_sinks() -> Any:
    """Log lines go where a test sends them, and nowhere afterwards."""
    logger.remove()
    yield
    logger.remove()


@dataclass
class Program:
    """The command line in a process of its own, forked from a server that has imported everything already."""

    process: BaseProcess
    output: Path
    seen: set[psutil.Process] = field(default_factory=set)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def text(self) -> str:
        return self.output.read_text()

    def sessions(self) -> list[psutil.Process]:
        """The session processes it has now, oldest first: forked by the server it started."""
        ours = psutil.Process(self.pid)
        self.seen.update(ours.children(recursive=True))
        found = [child for server in ours.children() for child in server.children()]
        return sorted(found, key=lambda process: process.create_time())

    def left(self) -> list[psutil.Process]:
        """Which of the processes it was seen to start are still there."""
        return [process for process in self.seen if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]

    def wait(self, seconds: float = 120) -> int:
        """Its exit code."""
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"still running after {seconds} s:\n{self.text()}"
        return self.process.exitcode

    def signal_group(self, number: signal.Signals) -> None:
        """What a terminal does on Ctrl-C: everyone gets the signal."""
        os.killpg(self.pid, number)


def start_program(arguments: Sequence[str], output: Path, modules: Path | None = None) -> Program:
    """Run the command line with these arguments; what it prints goes to `output`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["slm_lab.experiment.run", *PRELOAD])
    process = context.Process(target=_enter, args=(list(arguments), output, modules))
    process.start()
    return Program(process, output)


def _enter(arguments: list[str], output: Path, modules: Path | None) -> None:
    from slm_lab.cli.main import main

    os.setsid()
    with open(output, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # our server may have been started for sessions
    if modules is not None:
        sys.path.insert(0, str(modules))
    main(arguments)


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Look until something holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.02)
