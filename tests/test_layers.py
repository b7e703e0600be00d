"""The arrows between packages, checked in the source of every import, late ones included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from slm_lab.agent.algorithm import ALGORITHMS
from slm_lab.agent.algorithm.base import Algorithm

ROOT = Path(__file__).resolve().parents[1] / "slm_lab"

MAY_IMPORT: dict[str, set[str]] = {
    "lib": {"types"},
    "spec": {"types", "lib"},
    "env": {"types", "lib", "spec"},
    "agent": {"types", "lib", "spec"},
    "experiment": {"types", "lib", "spec", "env", "agent"},
    "cli": {"types", "lib", "spec", "experiment"},
}
INSIDE_AGENT: dict[str, set[str]] = {"net": set(), "memory": set(), "algorithm": {"net"}}


def sources(folder: Path) -> list[Path]:
    files = sorted(folder.rglob("*.py"))
    assert files, f"no sources in {folder}"
    return files


def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


def imports_of(file: Path) -> set[str]:
    """Modules of the lab a file imports, e.g. `agent.net.base`; for `from x import y` both x and x.y."""
    found = set[str]()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("slm_lab.") for name in found if name.startswith("slm_lab.")}


def packages(names: set[str], depth: int = 0) -> set[str]:
    return {name.split(".")[depth] for name in names if name.count(".") >= depth}


def test_every_package_has_its_place() -> None:
    folders = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert folders == MAY_IMPORT.keys()


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_only_downwards(package: str) -> None:
    for file in sources(ROOT / package):
        wrong = (packages(imports_of(file)) & {*MAY_IMPORT, "types"}) - MAY_IMPORT[package] - {package}
        assert not wrong, f"{file} imports {sorted(wrong)}"


def test_the_vocabulary_imports_nothing_of_the_lab() -> None:
    assert imports_of(ROOT / "types.py") == set()


@pytest.mark.parametrize("part", INSIDE_AGENT)
def test_nets_and_memories_know_neither_each_other_nor_algorithms(part: str) -> None:
    for file in sources(ROOT / "agent" / part):
        inside = {name for name in imports_of(file) if name.startswith("agent.")}
        wrong = (packages(inside, depth=1) & {*INSIDE_AGENT, "plan", "normalize"}) - INSIDE_AGENT[part] - {part}
        assert not wrong, f"{file} imports agent.{sorted(wrong)}"


def reads_environment(file: Path) -> bool:
    """Whether a file uses os.environ or os.getenv, under whatever name."""
    tree, names = tree_of(file), {"environ", "environb", "getenv", "getenvb"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "os" and names & {alias.name for alias in node.names}:
            return True
        if isinstance(node, ast.Attribute) and node.attr in names:
            return True
    return False


def test_only_the_command_line_reads_the_environment() -> None:
    readers = [file for file in sources(ROOT) if reads_environment(file) and file.parent.name != "cli"]
    assert readers == []


def classes_of(folder: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """(file, name, bases) of every class in a folder."""
    for file in sources(folder):
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.ClassDef):
                yield file, node.name, [ast.unparse(base).split(".")[-1] for base in node.bases]


def test_no_algorithm_is_made_from_another() -> None:
    algorithms = {name for _, name, bases in classes_of(ROOT / "agent" / "algorithm") if "Algorithm" in bases}
    assert algorithms >= {cls.__name__ for cls in ALGORITHMS.values()}
    assert {base for cls in ALGORITHMS.values() for base in cls.__bases__} == {Algorithm}
    for file, name, bases in classes_of(ROOT):
        assert not algorithms & set(bases), f"{file}: {name} is made from {bases}"


WRAPS = {"sil": "actor_critic", "ppo_sil": "ppo"}  # a wrapper must know what it wraps


def test_algorithms_do_not_import_each_other() -> None:
    folder = ROOT / "agent" / "algorithm"
    homes = {file.stem for file, _, bases in classes_of(folder) if "Algorithm" in bases}
    assert homes >= {cls.__module__.rpartition(".")[2] for cls in ALGORITHMS.values()}
    for file in sources(folder):
        inside = {name for name in imports_of(file) if name.startswith("agent.algorithm.")}
        wrong = packages(inside, depth=2) & homes - {file.stem, WRAPS.get(file.stem)}
        assert not wrong or file.name == "__init__.py", f"{file} imports {sorted(wrong)}"
