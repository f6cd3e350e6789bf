"""The counters of src/schedule/counters.inc. As a program (make docs) it writes their rows into docs/operations.md."""

import pathlib
import re

SOURCE = pathlib.Path(__file__).resolve().parents[2]
COUNTERS = re.findall(r'(?m)^(COUNTER|ENDED)\((\w+), "(.*)"\)$', (SOURCE / "src/schedule/counters.inc").read_text())
COUNTER_ROWS = "".join(f"| `{name}` | {text} |\n" for _, name, text in COUNTERS)

if __name__ == "__main__":
    page = SOURCE / "docs/operations.md"
    page.write_text(re.sub(r"(?<=\n\|---\|---\|\n)(\| `\w+` \| .*\n)+?(?=\| `busy_ms`)", lambda _: COUNTER_ROWS, page.read_text()))
