"""`slm-lab run FILE NAME search`: the errors that a user meets, before Ray or a folder is made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from run_helpers import no_sinks, only_run, run_tiny, tiny, write_spec  # noqa: F401
from search_helpers import GAMMA, SPACE, drawn, searched

from slm_lab.cli.main import main
from slm_lab.experiment.cluster import Room
from slm_lab.experiment.control import RunOptions
from slm_lab.experiment.paths import Paths
from slm_lab.experiment.search_record import SearchRecord
from slm_lab.lib.io import write_json
from slm_lab.spec.load import dump, from_mapping


@pytest.fixture(autouse=True)
def _no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slm_lab.experiment.search.cluster", lambda address: pytest.fail("Ray would be started"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def call(arguments: Sequence[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def search(data: Path, spec: dict[str, Any], mode: str = "search", *words: str) -> int:
    """The exit code of a search of a spec."""
    file = write_spec(data.parent, spec)
    return call(["run", str(file), "tiny", mode, "--data-dir", str(data), *words])


def begun(data: Path, spec: dict[str, Any], mode: str = "search") -> Paths:
    """A search folder as it is before the first trial."""
    paths = Paths(data / "tiny_2026_01_31_120000", "tiny")
    paths.make_folders()
    saved = dump(from_mapping(spec, "tiny").spec)
    saved["meta"]["record"] = {"mode": mode}
    write_json(paths.experiment_spec, saved)
    return paths


SCHEDULER = "meta.search_scheduler"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (tiny(meta={"max_trial": 4}), "search: this spec has no search space; add one such as"),
        (searched(meta={"max_trial": None}), "meta.max_trial: missing key: a search needs the number of its trials"),
        (searched(search={f"{GAMMA}__unifrom": [0.9, 1]}), "Did you mean 'uniform'?"),
        (searched(search={f"{GAMMA}__uniform": [0.99, 0.9]}), "allowed: [low, high] with low < high"),
        (searched(search={"agent.algorithm.gama__uniform": [0.9, 0.99]}), "gama"),
        (searched(search={f"{GAMMA}__uniform": [0.9, 1.5]}), "search, with agent.algorithm.gamma = 1.5"),
        (searched(meta={"search_scheduler": {"grace_perod": 60}}), "grace_period"),
        (searched(meta={"search_scheduler": {"reduction_factor": 3}}), f"{SCHEDULER}.grace_period"),
        (searched(meta={"search_scheduler": {"grace_period": 3e2}}), "300 frames leave nothing to stop early in 300"),
        (searched(meta={"search_resources": {"cpus": 2}}), "meta.search_resources"),
        (searched(meta={"search_resources": {"cpu": 0}}), "meta.search_resources.cpu"),
    ],
)
def test_what_a_search_lacks_is_said_before_anything_is_written(
    data: Path, spec: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert search(data, spec) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert "Traceback" not in error
    assert not data.exists()


def test_more_cores_than_there_are_is_an_error(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Small:
        def __enter__(self) -> Room:
            return Room(cpus=2, gpus=0.0, nodes=1)

        def __exit__(self, *error: object) -> None:
            """Nothing was started."""

    monkeypatch.setattr("slm_lab.experiment.search.cluster", lambda address: Small())
    assert search(data, searched(meta={"max_trial": 4, "search_resources": {"cpu": 2.5, "gpu": 1}})) == 2
    said = "meta.search_resources: a trial takes 2.5 cpu and 0 gpu, and there are 2 and 0."
    assert said in capsys.readouterr().err


def test_search_at_a_train_folder_points_to_train(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = searched(meta={"max_trial": 4})
    run_tiny(data, spec)
    folder = only_run(data)
    for mode in ("search@latest", f"search@{folder}"):
        assert search(data, spec, mode) == 2
        assert f"not a search; continue it with train@{folder.name}" in capsys.readouterr().err


def test_search_at_a_folder_that_is_not_there_or_not_a_run(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = searched(meta={"max_trial": 4})
    assert search(data, spec, "search@latest") == 2
    assert "no run of spec 'tiny'" in capsys.readouterr().err
    assert search(data, spec, f"search@{data / 'nowhere'}") == 2
    assert "no such run folder" in capsys.readouterr().err
    data.mkdir()
    assert search(data, spec, f"search@{data}") == 2
    assert "not a run of spec 'tiny'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (searched(meta={"max_trial": 4}, algorithm={"lam": 0.5}), "agent.algorithm.lam: 0.9 -> 0.5"),
        (searched(meta={"max_trial": 9}), "meta.max_trial: 4 -> 9"),
        (searched(search={f"{GAMMA}__uniform": [0.8, 0.99]}, meta={"max_trial": 4}), "the search space has changed"),
        (
            searched(meta={"max_trial": 4, "search_scheduler": {"grace_period": 60}}),
            "meta.search_scheduler: null -> ",
        ),
    ],
)
def test_a_search_goes_on_only_with_the_spec_it_began_with(
    data: Path, changed: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    begun(data, searched(meta={"max_trial": 4}))
    assert search(data, changed, "search@latest") == 2
    assert said in capsys.readouterr().err


def test_a_record_that_cannot_be_read_is_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = searched(meta={"max_trial": 4})
    paths = begun(data, spec)
    write_json(paths.trial_data, {"0": {"strength": 1}})
    assert search(data, spec, "search@latest") == 2
    assert f"{paths.trial_data}: trial 0 cannot be read" in capsys.readouterr().err


def test_a_search_whose_trials_all_failed_ends_with_1_and_one_with_a_score_with_0(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = searched(meta={"max_trial": 2})
    record = SearchRecord.at(begun(data, spec))
    for trial in (drawn(0, status="failed"), drawn(1, 90.0, "failed")):
        record.put(trial)
    assert search(data, spec, "search@latest") == 1
    record.put(drawn(1, 20.0))
    assert search(data, spec, "search@latest") == 0
    assert "gamma 0.95" in capsys.readouterr().out


def test_a_folder_at_which_another_process_works_is_left_alone(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from slm_lab.experiment.lock import alone

    spec = searched(meta={"max_trial": 2})
    paths = begun(data, spec)
    with alone(paths.predir, paths.models):
        assert search(data, spec, "search@latest") == 2
    assert not paths.trial_data.exists()


def test_the_options_of_a_search_reach_it(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[RunOptions]()

    class Done:
        complete = True

    class Result:
        trial, search = None, Done()

    def fake(loaded: Any, target: str | None, options: RunOptions, logging: Any) -> Any:
        seen.append(options)
        return Result()

    monkeypatch.setattr("slm_lab.experiment.search.search", fake)
    spec = {**searched(), "search": SPACE}
    words = ("--keep", "5", "--validate", "2", "--ray-address", "auto", "--jobs", "3")
    assert search(data, spec, "search", *words) == 0
    assert (seen[0].keep, seen[0].validate, seen[0].ray_address, seen[0].jobs) == (5, 2, "auto", 3)
