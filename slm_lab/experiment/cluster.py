"""Ray: a cluster of our own on this machine, or one that runs already; what was started is ended, nothing else."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from slm_lab.lib.cores import cores
from slm_lab.lib.errors import LabError, RunError

REACH = 10.0  # seconds in which a cluster's head must answer


class Room(NamedTuple):
    """What a cluster has to give."""

    cpus: int
    gpus: float
    nodes: int

    def __str__(self) -> str:
        return f"{self.cpus} cores of {self.nodes} node{'s' * (self.nodes > 1)}"


def require_ray() -> None:
    """Raise where Ray is not installed."""
    missing = [name for name in ("ray", "optuna") if find_spec(name) is None]
    if missing:
        raise LabError(f"{' and '.join(missing)} not installed: searches and --ray-address need slm-lab[search].")


@contextmanager
def cluster(address: str | None) -> Iterator[Room]:
    """Ray while this lasts: started here with this machine's cores, or the one at an address, which stays up."""
    import ray

    # what a user must know is said here; Ray Tune would show the traceback of each failed trial again
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    # trials keep the driver's folder, so that paths and `module:Class` in a spec mean the same there
    options["runtime_env"] = {"env_vars": {"RAY_CHDIR_TO_TRIAL_DIR": "0"}}
    try:
        if address is None:
            # niceness: else trials get what every other process leaves
            ray.init(num_cpus=cores(), include_dashboard=False, _system_config={"worker_niceness": 0}, **options)
        else:
            ray.init(address=address, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = "Ray could not be started" if address is None else f"--ray-address {address}: no Ray cluster answers"
        raise RunError(f"{where}: {str(error).splitlines()[0]}") from None
    try:
        found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        yield Room(int(found.get("CPU", 0)), found.get("GPU", 0.0), sum(node["Alive"] for node in nodes))
    finally:
        ray.shutdown()


def reach(address: str) -> None:
    """Raise where nobody listens at host:port; Ray itself would go on asking for many minutes."""
    require_ray()
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return
    if not port.isdecimal():
        raise LabError(f"--ray-address: got {address!r}; allowed: auto, or host:port of a cluster's head.")
    try:
        socket.create_connection((host, int(port)), timeout=REACH).close()
    except OSError as error:
        raise RunError(f"--ray-address {address}: nobody answers there: {error.strerror or error}") from None


def must_see(folder: Path, marker: Path) -> None:
    """Raise on a node that does not see the run's folder."""
    if not marker.exists():
        raise RunError(
            f"{folder}: not there on this node. Runs over several machines need a --data-dir on a file system that all "
            "of them share, at the same path."
        )
