"""Sessions of a train run on the nodes of a Ray cluster, here two on one machine."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_helpers import assert_same_results, run_tiny, tiny

from slm_lab.lib.errors import LabError, RunError

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster of two nodes with one core each."""
    import ray
    from ray.cluster_utils import Cluster

    eager = {"worker_niceness": 0}  # else other tests leave it nothing
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": eager}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1)
    try:
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_sessions_on_two_nodes_come_to_the_numbers_of_this_machine(tmp_path: Path, address: str) -> None:
    data = tiny("PPO", meta={"max_session": 3})
    here = run_tiny(tmp_path / "here", data)
    there = run_tiny(tmp_path / "there", data, ray_address=address)
    assert there.trial is not None
    assert (there.trial.done, there.trial.failures) == (3, {})
    assert_same_results(here.predir, there.predir)


def test_a_session_that_crashes_on_a_node_says_why(tmp_path: Path, address: str) -> None:
    faulty = {"name": "faulty_envs:Faulty", "faults": {"any": "raise"}, "at": 30}
    data = tiny("PPO", env=faulty, meta={"max_session": 2})
    trial = run_tiny(tmp_path, data, ray_address=address).trial
    assert trial is not None
    assert trial.done == 0
    assert all("broken at step 30" in reason for reason in trial.failures.values())


def test_workers_that_share_memory_stay_on_one_machine(tmp_path: Path) -> None:
    data = tiny("ActorCritic", meta={"max_session": 2, "distributed": "shared"})
    with pytest.raises(LabError, match="share memory"):
        run_tiny(tmp_path, data, ray_address="127.0.0.1:1")


def test_an_address_where_nobody_listens_is_told_at_once(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refuses
        port = taken.getsockname()[1]
        with pytest.raises(RunError, match=f"127.0.0.1:{port}: nobody answers there"):
            run_tiny(tmp_path / "nothing", tiny("PPO"), ray_address=f"127.0.0.1:{port}")
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(LabError, match="auto, or host:port"):
        run_tiny(tmp_path, tiny("PPO"), ray_address="there:x")


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """Ray's loggers are left as they were."""
    loggers = [logging.getLogger(name) for name in ("ray", "ray.tune")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)
