"""`slm-lab spec keys --markdown`: the page docs/KEYS.md, which is what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from pydantic import Field

from slm_lab.cli.main import main
from slm_lab.experiment.explain import components
from slm_lab.spec.key_tables import key_page
from slm_lab.spec.parse import Model

PAGE = Path(__file__).parents[2] / "docs" / "KEYS.md"
COMMAND = "slm-lab spec keys --markdown > docs/KEYS.md"


class Inner(Model):
    """Something inside."""

    depth: int = Field(description="how deep")


class Outer(Model):
    """Something with parts."""

    inert: ClassVar = {"old": "gone"}

    mode: Literal["a", "b"] = Field("a", description="one of `a|b`")
    inner: Inner | None = Field(None, description="a part")


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["spec", "keys", *arguments])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_page_of_keys_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    if PAGE.read_text() != printed(["--markdown"], capsys):
        pytest.fail(f"docs/KEYS.md is out of date; run: {COMMAND}")
    assert COMMAND in PAGE.read_text()


def test_every_component_has_a_table_with_all_its_keys() -> None:
    sections = PAGE.read_text().split("\n## ")[1:]
    assert [section.partition("\n")[0] for section in sections] == list(components())
    for section, model in zip(sections, components().values(), strict=True):
        found = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        assert found == [*model.model_fields, *model.inert]


def test_every_row_of_a_table_has_four_cells() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    assert len(rows) > 300
    assert {len(re.split(r"(?<!\\)\|", row)) for row in rows} == {6}  # four, and nothing on either side


def test_bars_are_escaped_types_link_to_their_section_and_inert_keys_are_marked() -> None:
    page = key_page({"outer": Outer, "inner_spec": Inner})
    assert "Sections: [outer](#outer), [inner_spec](#inner_spec).\n\n## outer\n\nSomething with parts.\n\n" in page
    assert page.endswith(
        "## inner_spec\n\nSomething inside.\n\n"
        "| Key | Type | Default | Meaning |\n|---|---|---|---|\n"
        "| `depth` | `int` | *required* | how deep |"
    )
    assert '\n| `mode` | `a \\| b` | `"a"` | one of `a\\|b` |\n' in page
    assert "\n| `inner` | `Inner \\| null`, see [inner_spec](#inner_spec) | `null` | a part |\n" in page
    assert "\n| `old` | *inert* |  | gone; ignored with a warning |\n" in page


def test_one_component_can_be_asked_for_alone(capsys: pytest.CaptureFixture[str]) -> None:
    page = printed(["Replay", "--markdown"], capsys)
    assert page.count("\n## ") == 1
    assert "\n| `batch_size` | `int` | *required* | transitions of a batch" in page
