"""Write the golden files again: `python -m tests.golden.update`; read the diff before committing it."""

from __future__ import annotations

from tests.golden import FOLDER, renderings
from tests.golden.refusals import refusals


def main() -> None:
    for name, text in {**renderings(), "refusals.txt": refusals()}.items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
