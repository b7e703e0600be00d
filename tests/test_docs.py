"""The documentation is true: links lead somewhere, commands exist, specs are valid, examples run and resume."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import typer.main
from run_helpers import assert_same_results, no_sinks  # noqa: F401

import slm_lab
from slm_lab.cli.main import app, with_command
from slm_lab.experiment.check import check
from slm_lab.experiment.control import RunOptions
from slm_lab.spec.load import load, spec_names
from slm_lab.spec.text import PLACEHOLDER

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FILE = re.compile(r"# (\w+\.(?:py|yaml))\n")
FILLED = {"env": "CartPole-v1", "max_frame": "3000"}  # values for placeholders of specs that are shown


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    language: str
    text: str


def blocks(page: Path, *languages: str) -> list[Block]:
    return [Block(page, *found) for found in FENCED.findall(page.read_text()) if found[0] in languages]


def files_shown(page: Path) -> dict[str, str]:
    """The files a page shows in full: blocks whose first line is a comment with the file's name."""
    shown = {}
    for block in blocks(page, "python", "yaml"):
        named = FILE.match(block.text)
        if named:
            shown[named[1]] = block.text
    return shown


def slug(heading: str) -> str:
    """The anchor that code hosts give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    plain = FENCED.sub("", page.read_text())
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", plain, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_to_a_file_and_a_heading_in_it(page: Path) -> None:
    links = [link for link in LINK.findall(FENCED.sub("", page.read_text())) if "://" not in link]
    for link in links:
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name}: {link} leads nowhere"
        assert not anchor or anchor in anchors(file), f"{page.name}: {link}: no such heading in {file.name}"


def command_lines() -> list[str]:
    """Every `slm-lab ...` line of the blocks of shell commands."""
    lines = [line for page in PAGES for block in blocks(page, "bash") for line in block.text.splitlines()]
    return sorted({line for line in lines if line.startswith("slm-lab")})


@pytest.mark.parametrize("line", command_lines())
def test_every_command_that_is_shown_exists_with_its_options(line: str) -> None:
    command: Any = typer.main.get_command(app)
    words = with_command(shlex.split(line.partition(" > ")[0], comments=True)[1:])
    while hasattr(command, "commands"):
        name, *words = words
        assert name in command.commands, f"{line}: no command {name}"
        command = command.commands[name]
    command.make_context(line, words)  # reads the arguments and runs nothing


def shown_specs() -> list[tuple[Path, str]]:
    return [(page, name) for page in PAGES for name in files_shown(page) if name.endswith(".yaml")]


def write_files(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the files a page shows into a folder, from which modules can be imported as on the command line."""
    shown = files_shown(page)
    for name, text in shown.items():
        (folder / name).write_text(text)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize(("page", "name"), shown_specs(), ids=lambda part: Path(part).name)
def test_every_spec_file_that_is_shown_is_valid(
    page: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(page, tmp_path, monkeypatch)
    wanted = sorted(set(PLACEHOLDER.findall((tmp_path / name).read_text())))
    sets = [f"{key}={FILLED[key]}" for key in wanted]
    for spec in spec_names(name):
        notes = list[str]()
        check(load(name, spec, sets).spec, notes)
        assert not [note for note in notes if "ignored" in note]
    assert spec_names(name)


EXAMPLES = ["my_algorithm.yaml", "my_net.yaml", "my_memory.yaml", "my_env.yaml"]


def test_every_kind_of_component_has_an_example() -> None:
    shown = files_shown(ROOT / "docs" / "EXTENDING.md")
    assert [name for name in shown if name.endswith(".yaml")] == EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_goes_on_after_a_stop_as_if_there_had_been_none(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(ROOT / "docs" / "EXTENDING.md", tmp_path, monkeypatch)
    # drawing takes longer than all the rest
    monkeypatch.setattr("slm_lab.experiment.plot.draw", lambda *arguments, **options: b"")

    def run(folder: str, frames: int, mode: str = "train") -> Path:
        sets = [f"max_frame={frames}", "log_frequency=40"]
        result = slm_lab.run(name, None, mode, sets, RunOptions(Path(folder), log_level="ERROR"))
        assert result.trial is not None
        assert result.trial.complete
        return result.predir

    whole, half = run("whole", 240), run("parts", 120)
    assert_same_results(whole, run("parts", 240, f"train@{half}"))
    agent = slm_lab.load(whole)
    assert agent.act(np.zeros(agent.adapter.spaces.obs_shape, np.float32)) in (0, 1)


def test_the_python_of_the_first_steps_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = blocks(ROOT / "docs" / "START.md", "python")
    assert shown
    names: dict[str, Any] = {}
    for block in shown:
        exec(block.text, names)
    assert names["result"].trial.complete
    assert names["total"] > 0
