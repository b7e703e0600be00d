"""Keys of spec sections as rows, and as the Markdown page docs/KEYS.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from slm_lab.spec.describe import KeyDoc, describe
from slm_lab.spec.parse import Model

REQUIRED, INERT = "required", "inert"
INTRO = """\
# Spec keys

Every key a spec can hold: its type, its default and what it means. [SPECS.md](SPECS.md) tells how a spec is put
together, [ALGORITHMS.md](ALGORITHMS.md) and [NETS.md](NETS.md) what to choose.

This page is written by `slm-lab spec keys --markdown > docs/KEYS.md` from the code that reads the keys, and a test
fails when it is out of date. A default of *required* means that there is none. An *inert* key is one that older specs
carry and nothing reads: it is ignored with a warning."""


def key_rows(model: type[Model]) -> list[KeyDoc]:
    """The keys of a model as they are declared, then those that are read by nothing."""
    inert = [KeyDoc(key, INERT, "", f"{reason}; ignored with a warning") for key, reason in model.inert.items()]
    return [*describe(model), *inert]


def key_page(models: Mapping[str, type[Model]]) -> str:
    """A Markdown page with one table for each model, by the name a user knows."""
    contents = ", ".join(_link(name) for name in models)
    sections = {model.__name__: name for name, model in models.items()}
    return "\n\n".join([INTRO, f"Sections: {contents}.", *(_table(*item, sections) for item in models.items())])


def _table(name: str, model: type[Model], sections: Mapping[str, str]) -> str:
    """One section: heading, what it is, its keys."""
    head = ["| Key | Type | Default | Meaning |", "|---|---|---|---|"]
    lines = [_line(_cells(row, sections)) for row in key_rows(model)]
    return "\n".join([f"## {name}", "", (model.__doc__ or "").strip(), "", *head, *lines])


def _cells(row: KeyDoc, sections: Mapping[str, str]) -> list[str]:
    """Code for what is typed in a spec; a type that has a section of its own links to it."""
    kind = f"*{INERT}*" if row.type == INERT else f"`{row.type}`"
    links = [_link(sections[word]) for word in re.findall(r"\w+", row.type) if word in sections]
    default = f"*{REQUIRED}*" if row.default == REQUIRED else f"`{row.default}`" if row.default else ""
    return [f"`{row.key}`", ", see ".join([kind, *links]), default, row.meaning]


def _line(cells: Iterable[str]) -> str:
    """A row of a table; a bar inside a cell would end it, in code too."""
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"
