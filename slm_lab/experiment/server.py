"""The server that processes of sessions are forked from: it has imported torch once. Nothing here imports it."""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing import forkserver, resource_tracker
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# the last three are what torch.optim, TensorBoard and the graphs import when first used: seconds for every session
PRELOAD = ["slm_lab.experiment.worker", "torch._dynamo", "torch.utils.tensorboard", "matplotlib.backends.backend_agg"]


def warm_up() -> Any:
    """Let the server do its imports, where the system has one, while we do ours; gives the way to start processes."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    resource_tracker.ensure_running()  # it lifts the block when it starts
    # the server and new sessions inherit the block: a Ctrl-C while they import must not end them with a traceback
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    return context
