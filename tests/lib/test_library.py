"""Compiled functions on disk: one is compiled for real, and the files it leaves behind are what is looked at."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from slm_lab.lib import library as libraries
from slm_lab.lib.errors import RunError
from slm_lab.lib.library import Captured, Library, Source, cheapen, compiler_exists, library, trace

KEY = "count"
NOTES = {"wishes": [["normal", [2, 3], 0]], "why": "kept with it"}


def count(tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """Adds up what it is given in its second input; the first and the last it leaves alone, the third it never uses."""
    rows, total, _, scale = tensors
    total.add_(rows.sum())
    return {"scaled": rows * scale, "total": total + 1}


def source() -> Source:
    return Source(count, [torch.ones(3), torch.zeros(()), torch.ones(7), torch.ones(3)], NOTES)


def never() -> Source:
    raise AssertionError("compiled again")


class Made(NamedTuple):
    folder: Path
    library: Library


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A library that was compiled now."""
    if not compiler_exists():
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("libraries") / "of" / "a lab"
    return Made(folder, library(folder, KEY, source))


@pytest.fixture
def copied(made: Made, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From here on to compile is to copy the file that there is; names of what was compiled."""
    names = list[str]()

    def copy(source: Source, path: Path) -> None:
        names.append(path.stem)
        shutil.copyfile(made.folder / f"{KEY}.pt2", path)

    monkeypatch.setattr(libraries, "_compile", copy)
    return names


def assert_counts(found: Library) -> None:
    rows, total = torch.tensor([1.0, 2.0, 4.0]), torch.tensor(10.0)
    first = found([rows, total, torch.zeros(7), torch.tensor([2.0, 2.0, 0.5])])
    assert list(first) == ["scaled", "total"]
    assert first["scaled"].tolist() == [2, 4, 2]
    assert first["total"].item() == 18
    assert total.item() == 17  # in place
    assert found([rows, total, torch.zeros(7), rows])["total"].item() == 25
    assert total.item() == 24
    assert rows.tolist() == [1, 2, 4]


# what a library does ----------------------------------------------------------------------------------------------


def test_a_compiled_function_computes_and_changes_its_inputs_in_place(made: Made) -> None:
    assert_counts(made.library)


def test_what_a_later_call_gives_is_not_written_over(made: Made) -> None:
    total = torch.zeros(())
    first, second = (made.library([torch.ones(3), total, torch.zeros(7), torch.ones(3)]) for _ in range(2))
    assert (first["total"].item(), second["total"].item()) == (4, 7)


def test_inputs_that_are_never_used_are_dropped(made: Made) -> None:
    assert made.library.notes["used"] == [0, 1, 3]
    not_even_a_tensor: Any = None
    found = made.library([torch.ones(3), torch.zeros(()), not_even_a_tensor, torch.ones(3)])
    assert found["total"].item() == 4


def test_notes_come_back(made: Made) -> None:
    assert {key: made.library.notes[key] for key in NOTES} == NOTES


# files ------------------------------------------------------------------------------------------------------------


def test_nothing_but_the_library_is_left_in_its_folder(made: Made) -> None:
    assert [path.name for path in made.folder.iterdir()] == [f"{KEY}.pt2"]


def test_a_library_that_is_there_is_loaded_and_not_compiled(made: Made) -> None:
    again = library(made.folder, KEY, never)
    assert_counts(again)
    assert again.notes == made.library.notes
    assert [path.name for path in made.folder.iterdir()] == [f"{KEY}.pt2"]


def test_another_key_is_compiled(copied: list[str], tmp_path: Path) -> None:
    library(tmp_path, "one", source)
    library(tmp_path, "other", source)
    library(tmp_path, "one", never)
    assert copied == ["one", "other"]


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_damaged_library_is_compiled_again_and_said_to_be(
    made: Made, copied: list[str], share: float, tmp_path: Path, warnings: list[str]
) -> None:
    whole = (made.folder / f"{KEY}.pt2").read_bytes()
    path = tmp_path / "torn.pt2"
    path.write_bytes(whole[: int(share * len(whole))])
    assert_counts(library(tmp_path, "torn", source))
    assert copied == ["torn"]
    (line,) = warnings
    assert line.startswith(f"{path}: cannot be loaded and is compiled again")
    assert_counts(library(tmp_path, "torn", never))


def test_what_cannot_be_compiled_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("torch._inductor.aoti_compile_and_package", fail)
    with pytest.raises(RunError, match=r"count cannot be compiled: no space left; .* runs without"):
        library(tmp_path, KEY, source)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_a_dead_process_left_does_not_matter(copied: list[str], tmp_path: Path) -> None:
    (tmp_path / f"{KEY}.lock").touch()
    library(tmp_path, KEY, source)
    assert [path.name for path in tmp_path.iterdir()] == [f"{KEY}.pt2"]


def test_several_that_want_a_library_at_once_compile_it_once(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, found = list[str](), list[Library]()

    def slowly(source: Source, path: Path) -> None:
        names.append(path.stem)
        time.sleep(0.3)
        shutil.copyfile(made.folder / f"{KEY}.pt2", path)

    monkeypatch.setattr(libraries, "_compile", slowly)
    threads = [threading.Thread(target=lambda: found.append(library(tmp_path, KEY, source))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert names == [KEY]


def test_a_folder_keeps_the_libraries_that_were_used_last(
    copied: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "KEPT", 3)
    for age, name in enumerate(("newest", "middle", "oldest")):
        library(tmp_path, name, source)
        then = time.time() - 100 * (age + 1)
        os.utime(tmp_path / f"{name}.pt2", (then, then))
    library(tmp_path, "oldest", never)  # used again
    library(tmp_path, "more", source)
    assert {path.stem for path in tmp_path.iterdir()} == {"newest", "oldest", "more"}


# what is seen of a function ---------------------------------------------------------------------------------------


def test_looking_at_a_function_changes_nothing() -> None:
    seen = source()
    graph, names = trace(seen)
    assert names == ["scaled", "total"]
    assert seen.example[1].item() == 0
    total = torch.tensor(5.0)
    scaled, after = graph(torch.ones(3), total, torch.zeros(7), torch.full((3,), 3.0))
    assert (scaled.tolist(), after.item(), total.item()) == ([3, 3, 3], 9, 8)


def test_a_tensor_that_is_no_input_is_an_error_and_not_a_number_fixed_for_good() -> None:
    outside = torch.tensor([1.0, 2.0])
    with pytest.raises(AssertionError, match="FakeTensor"):
        trace(Source(lambda tensors: {"sum": tensors[0] + outside}, [torch.ones(2)]))


def test_a_cheaper_tanh_is_the_same_but_for_the_last_digit() -> None:
    x = torch.linspace(-12, 12, 1001)
    graph, names = trace(Source(lambda tensors: {"y": torch.tanh(tensors[0])}, [x]))
    cheapen(graph)
    targets = [str(node.target) for node in graph.graph.nodes]
    assert "aten.sigmoid.default" in targets
    assert "aten.tanh.default" not in targets
    assert names == ["y"]
    torch.testing.assert_close(graph(x)[0], torch.tanh(x), rtol=0, atol=2.4e-7)  # two units in the last place of 1


def test_what_a_gpu_would_capture_counts_alike() -> None:
    if not compiler_exists():
        pytest.skip("there is no C++ compiler")
    rows, total = torch.tensor([1.0, 2.0, 4.0]), torch.tensor(10.0)
    found = Captured(source(), [total])
    assert found.notes == NOTES
    assert found([rows, total, torch.zeros(7), rows])["total"].item() == 18
    assert found([rows, total, torch.zeros(7), rows])["scaled"].tolist() == [1, 4, 16]
    assert total.item() == 24
