"""`slm-lab`: commands, and errors as one message with an exit code.

0 done, 1 a run failed or is incomplete, 2 bad input, 130 and 143 after Ctrl-C and SIGTERM.
Nothing here imports torch until a command needs it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import typer

from slm_lab.cli.baseline import baseline
from slm_lab.cli.bench import app as bench_app
from slm_lab.cli.hub import hub_to_write, list_runs, pull, push
from slm_lab.cli.net import app as net_app
from slm_lab.cli.options import SIGNAL_CODES, Debug, Sets, say
from slm_lab.cli.ray import SETTINGS
from slm_lab.cli.ray import stop_ray as end_ray
from slm_lab.cli.remote import run_remote
from slm_lab.cli.results import compare, plot, plot_list, retro
from slm_lab.cli.spec import app as spec_app
from slm_lab.cli.verify import verify
from slm_lab.lib.errors import LabError, RunError

DEFAULT_FILE = "slm_lab/spec/benchmark/ppo/ppo_cartpole.json"
DEFAULT_NAME = "ppo_cartpole"
COMMANDS = (
    *("run", "run-remote", "enjoy", "bench", "spec", "net", "plot", "plot-list", "retro", "compare", "verify"),
    *("baseline", "push", "pull", "list"),
)

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.add_typer(spec_app, name="spec")
app.add_typer(net_app, name="net")
app.add_typer(bench_app, name="bench")
for command in (run_remote, plot, plot_list, retro, compare, verify, baseline, push, pull):
    app.command()(command)
app.command("list")(list_runs)


@app.callback(invoke_without_command=True)
def about(show: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    """SLM-Lab: from a spec to trained agents, tables, graphs and scores.

    A first word that is not a command is taken for `run`: `slm-lab FILE NAME train`.
    """
    if show:
        typer.echo(version("slm-lab"))
        raise typer.Exit


Jobs = Annotated[int | None, typer.Option(min=1, help="Sessions at once, one a core unless set; numbers are the same.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Torch threads of a session; recorded, for sums depend on it.")
]
Compile = Annotated[
    Literal["auto", "true", "false"] | None,
    typer.Option(
        help="Run gradient steps as compiled functions; recorded, for sums depend on it. auto: where it pays."
    ),
]
Render = Annotated[bool, typer.Option(envvar="RENDER", help="Show the env in a window.")]
LogExtra = Annotated[
    bool,
    typer.Option(envvar=["LOG_EXTRA", "LOG_METRICS"], help="Also draw strength, efficiencies, stability, consistency."),
]
Profile = Annotated[
    bool,
    typer.Option(envvar="PROFILE", help="Print where each session's time goes, and write a flame graph."),
]


RayAddress = Annotated[
    str | None,
    typer.Option(help="A Ray cluster to run on, `auto` or host:port, in place of this machine alone."),
]


@app.command()
def run(
    spec_file: Annotated[str, typer.Argument(help="Spec file: any path, or one of the packaged specs.")] = DEFAULT_FILE,
    spec_name: Annotated[str, typer.Argument(help="Name of a spec in the file.")] = DEFAULT_NAME,
    mode: Annotated[str, typer.Argument(help="dev, train, search, train@latest, train@DIR or enjoy@SPEC.")] = "dev",
    sets: Sets = None,
    data_dir: Annotated[Path, typer.Option(help="Where runs are written.")] = Path("data"),
    jobs: Jobs = None,
    threads: Threads = None,
    compile: Compile = None,
    checkpoint_every: Annotated[float, typer.Option(min=0, help="Seconds between checkpoints, at log rows.")] = 30.0,
    render: Render = False,
    log_level: Annotated[str, typer.Option(envvar="LOG_LEVEL", help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
    log_extra: LogExtra = False,
    profile: Profile = False,
    ray_address: RayAddress = None,
    keep: Annotated[int, typer.Option(min=0, help="search: best trials whose models stay.")] = 3,
    validate: Annotated[
        int, typer.Option(min=0, help="search: best trials to train anew, on seeds that the search did not use.")
    ] = 0,
    upload_hf: Annotated[
        bool,
        typer.Option("--upload-hf", help="Push the run to HF_REPO on the hub while it goes on, and when it ends."),
    ] = False,
    upload_every: Annotated[float, typer.Option(min=0.1, help="Minutes between uploads with --upload-hf.")] = 10.0,
    dstack: Annotated[bool, typer.Option("--dstack", hidden=True, help="The older name of run-remote.")] = False,
    stop_ray: Annotated[
        bool, typer.Option("--stop-ray", "--kill-ray", hidden=True, help="End Ray of searches.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Train a spec, continue an interrupted run, or watch a trained one. Without arguments: PPO on CartPole."""
    if stop_ray:
        end_ray()
        return
    if dstack:
        say(["--dstack is the older name of `slm-lab run-remote`, which takes more options."])
        run_remote(spec_file, spec_name, mode, sets, profile=profile)
        return
    if mode.startswith("train") and ray_address is None:
        _begin_imports(spec_file, spec_name, sets or [])
    from slm_lab.experiment.control import RunOptions
    from slm_lab.experiment.run import parse_mode
    from slm_lab.experiment.run import run as run_spec

    if parse_mode(mode)[0] == "enjoy":
        _enjoy(Path(str(parse_mode(mode)[1])), episodes=10, stochastic=False, render=render, video=None)
        return
    wanted = compile if compile is None or compile == "auto" else compile == "true"
    options = RunOptions(
        data_dir,
        jobs,
        threads,
        wanted,
        checkpoint_every,
        render,
        log_level,
        log_extra,
        profile,
        ray_address=ray_address,
        keep=keep,
        validate=validate,
        hub=hub_to_write() if upload_hf else None,
        upload_every=upload_every,
    )
    result = run_spec(spec_file, spec_name, mode, sets or [], options)
    outcome = result.trial or result.search
    if outcome is not None and not outcome.complete:
        raise typer.Exit(SIGNAL_CODES.get(outcome.stopped, 1))


def _begin_imports(spec_file: str, spec_name: str, sets: Sequence[str]) -> None:
    """Where sessions have processes of their own, let these import torch while this one does: seconds of every run."""
    from slm_lab.experiment.server import warm_up
    from slm_lab.spec.load import load

    if load(spec_file, spec_name, sets).spec.meta.max_session > 1:
        warm_up()


@app.command()
def enjoy(
    folder: Annotated[Path, typer.Argument(help="A run folder, or a spec file in one.")],
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 10,
    stochastic: Annotated[bool, typer.Option(help="Sample actions instead of taking the most likely ones.")] = False,
    video: Annotated[
        Path | None, typer.Option(help="Film the episodes: the best, the median and the worst go to this mp4 file.")
    ] = None,
    render: Render = False,
    debug: Debug = False,
) -> None:
    """Play a trained agent and print its returns. The run itself is only read."""
    _enjoy(folder, episodes, stochastic, render, video)


def _enjoy(target: Path, episodes: int, stochastic: bool, render: bool, video: Path | None) -> None:
    if render and video is not None:
        raise LabError("--render and --video: one of them, for a window needs a screen and a video needs none.")
    if video is not None and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        os.environ.setdefault("MUJOCO_GL", "egl")  # before MuJoCo is imported: how it draws without a screen
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    from slm_lab.experiment.policy import enjoy as play
    from slm_lab.experiment.policy import find_trained, window
    from slm_lab.experiment.video import film

    trained = find_trained(target)
    typer.echo(f"{trained.spec.name}, session {trained.paths.session}, {trained.spec.env.name}")
    if video is not None:
        returns = film(video, lambda watch: play(trained, episodes, not stochastic, watch))
    else:
        returns = play(trained, episodes, not stochastic, window(trained) if render else None)
    for i, total in enumerate(returns):
        typer.echo(f"episode {i}: {total:.2f}")
    typer.echo(f"mean return over {len(returns)} episodes: {sum(returns) / len(returns):.2f}")
    if video is not None:
        typer.echo(f"video: {video}")


def with_command(arguments: Sequence[str]) -> list[str]:
    """Arguments that name a command: `run` is put in front where the first word is none."""
    words = list(arguments) or ["--help"]
    if words[0] in (*COMMANDS, "--help", "--version"):
        return words
    return ["run", *words]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code."""
    words = with_command(sys.argv[1:] if arguments is None else arguments)
    # `module:Class` may lie beside the spec one works on; last, so that it shadows nothing
    sys.path.append(os.getcwd())
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    # else the first of several sessions takes most of a GPU for itself
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    sys.exit(guarded(lambda: app(words, prog_name="slm-lab"), debug="--debug" in words))


def guarded(command: Callable[[], object], debug: bool) -> int:
    """Exit code of a command; errors a user can act on are one message on stderr."""
    try:
        command()
    except SystemExit as ended:  # how typer leaves, with usage errors already shown
        return ended.code if isinstance(ended.code, int) else 0
    except (LabError, RunError) as error:
        if debug:
            traceback.print_exc()
        typer.echo(f"error: {error}", err=True)
        return 2 if isinstance(error, LabError) else 1
    except KeyboardInterrupt:
        return 130
    return 0
