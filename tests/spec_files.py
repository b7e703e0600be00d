"""The spec files: our own, and the public ones where they are at hand; how to fill their placeholders.

`python tests/spec_files.py` runs each of the public specs for 40 frames. It prints one line a spec, and ends with
those that cannot run and why; any other failure is an exit code of 1.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from loguru import logger

import slm_lab.spec
from slm_lab.agent.plan import plan_agent
from slm_lab.experiment.session import Session
from slm_lab.lib.errors import LabError, SpecError
from slm_lab.spec.load import for_mode, load, spec_names
from slm_lab.spec.schema import Spec
from slm_lab.spec.text import PLACEHOLDER

SPECS = Path(__file__).resolve().parents[1] / "../shared/specs"
FILES = sorted(
    path
    for path in SPECS.rglob("*")
    if path.suffix in (".json", ".yaml", ".yml") and path.name != "_random_baseline.json"
)
PACKAGED = sorted(
    path
    for path in (Path(slm_lab.spec.__file__).parent / "benchmark").rglob("*")
    if path.suffix in (".json", ".yaml") and path.name != "suite.yaml"
)
"""Our own spec files."""
BULLET = SPECS / "benchmark/async_sac/async_sac_halfcheetah_pybullet.json"

FITTING = {"atari": "ALE/Pong-v5", "mujoco": "HalfCheetah-v5", "playground": "playground/CartpoleBalance"}


def sets_for(path: Path, name: str) -> list[str]:
    """`-s` texts for the placeholders of one spec, as its own error names them; the env fits the file's name."""
    env = next((env for word, env in FITTING.items() if word in path.name), "CartPole-v1")
    fill = {"env": env, "max_frame": "1e6"}
    try:
        load(path, name)
    except SpecError as error:
        return [f"{key}={fill[key]}" for key in dict.fromkeys(PLACEHOLDER.findall(str(error)))]
    return []


def specs_of(path: Path) -> Iterator[Spec]:
    """Every spec of a file, with its placeholders filled."""
    for name in spec_names(path):
        yield load(path, name, sets_for(path, name)).spec


def run_test_mode(spec: Spec) -> Session:
    """A session of 40 frames, finished and closed; LabError where the spec cannot run here."""
    small = for_mode(spec, "test")
    session = Session(small, plan_agent(small.agent, small.env.num_envs, []), (0, 0, 0))
    try:
        session.run()
    finally:
        session.close()
    assert session.clock.frame >= 40
    return session


def main() -> int:
    """Run everything; 0 when each spec ran or said why it cannot."""
    warnings.simplefilter("ignore")
    logger.remove()
    ran, refused, broken = 0, list[str](), list[str]()
    for path in FILES:
        for name in spec_names(path):
            start = time.perf_counter()
            place = f"{path.relative_to(SPECS)} {name}"
            try:
                spec = load(path, name, sets_for(path, name)).spec
                run_test_mode(spec)
            except LabError as error:
                refused.append(f"{place}: {error}")
                print(f"cannot  {place}", flush=True)
            except Exception as error:
                broken.append(f"{place}: {type(error).__name__}: {error}")
                print(f"BROKEN  {place}", flush=True)
            else:
                ran += 1
                print(f"{time.perf_counter() - start:5.1f} s {place} ({spec.env.name})", flush=True)
    print(f"{ran} specs of {len(FILES)} files ran, {len(refused)} cannot, {len(broken)} are broken", flush=True)
    print("\n".join([*refused, *broken]))
    return 1 if broken or not FILES else 0


if __name__ == "__main__":
    sys.exit(main())
