"""Components from a registry or from a user's own module."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pytest

from slm_lab.lib.errors import SpecError
from slm_lab.lib.plugin import component, import_name

REGISTRY: dict[str, type[dict[str, int]]] = {"Plain": dict}


def find(name: object) -> type[dict[str, int]]:
    return component(REGISTRY, name, "here.name", "mapping", dict)


def test_a_registered_name_and_a_module_path_both_give_the_class() -> None:
    assert find("Plain") is dict
    assert find("collections:OrderedDict") is OrderedDict


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Plian", "here.name: unknown mapping 'Plian'. Did you mean 'Plain'? Known: Plain."),
        (3, "here.name: unknown mapping 3. Known: Plain."),
        ("collections:Orderdict", "module 'collections' has no 'Orderdict'. Did you mean 'OrderedDict'?"),
        ("no_such_module:X", "cannot import 'no_such_module' of 'no_such_module:X': ModuleNotFoundError: No module"),
        ("collections:deque", "'collections:deque' is not a mapping: expected a subclass of builtins.dict."),
        ("math:pi", "'math:pi' is not a mapping: expected a subclass of builtins.dict."),
        (":X", "here.name: cannot import ''"),
        ("collections:", "module 'collections' has no ''."),
    ],
)
def test_anything_else_says_what_is_wrong(name: object, message: str) -> None:
    with pytest.raises(SpecError) as error:
        find(name)
    assert message in str(error.value)


def test_a_module_that_fails_when_imported_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_plugin.py").write_text("raise RuntimeError('not today')")
    (tmp_path / "mistyped_plugin.py").write_text("class X(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SpecError, match=r"cannot import 'broken_plugin' .*RuntimeError: not today"):
        import_name("broken_plugin:X", "here")
    with pytest.raises(SpecError, match=r"cannot import 'mistyped_plugin' .*SyntaxError: .*line 1"):
        import_name("mistyped_plugin:X", "here")
