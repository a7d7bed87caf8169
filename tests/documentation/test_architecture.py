"""The page on the architecture names files that exist."""

import re
from pathlib import Path

import regard

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-it-works" / "architecture.md"


def test_every_file_that_the_page_names_exists() -> None:
    folders = (Path(regard.__file__).parent, ROOT / "explorer-web" / "src")
    files = {path.name for folder in folders for path in folder.rglob("*.*")}
    paths = [path.as_posix() for folder in folders for path in folder.rglob("*.*")]
    names = re.findall(r"`([\w/-]*\w\.(?:py|ts|tsx))`", PAGE.read_text(encoding="utf-8"))
    assert len(names) > 20
    absent = [name for name in names if name.rpartition("/")[2] not in files]
    absent += [name for name in names if not any(f"/{path}".endswith(f"/{name}") for path in paths)]
    assert not absent
