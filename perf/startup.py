"""Seconds from the command to the first frame, by what they are spent on: run as `python -m perf.startup NOW`."""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise


def main() -> None:
    marks = [float(sys.argv[1]), time.time()]
    from slm_lab.agent.plan import plan_agent
    from slm_lab.cli import main as _command  # noqa: F401  # what the command itself imports
    from slm_lab.experiment import run as _run  # noqa: F401
    from slm_lab.experiment.session import Session

    marks.append(time.time())
    from perf.command import FILE, NAME
    from slm_lab.spec.load import load

    spec = load(FILE, NAME).spec
    session = Session(spec, plan_agent(spec.agent, spec.env.num_envs, []), (0, 0, 0))
    marks.append(time.time())
    session.step()
    marks.append(time.time())
    spent = [later - earlier for earlier, later in pairwise(marks)]
    print(json.dumps(dict(zip(("interpreter", "imports", "build", "first step"), spent, strict=True))))


if __name__ == "__main__":
    main()
