"""Real rows for the measurements of bulk jobs: paragraphs of English man pages, fortunes and Debian's package
descriptions, if the machine has them; then variations of these, until there are enough. No two rows are equal.

    bulk_rows.py ROWS FILE
"""
import glob
import gzip
import itertools
import os
import random
import re
import subprocess
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FONTS = re.compile(r"\\f(\[\w*\]|\(..|.)|\\[&|^/,%]|\\s[-+]?\d")
REQUEST = re.compile(r"^[.'](?:BR?|IR?|RB|RI|BI|IB|SM|SB) +(.*)")


def descriptions():
    """The name and one-line description of each package that apt knows; without apt lists, the demo's sample."""
    said = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, check=False).stdout.decode("utf-8", "replace")
    found = re.findall(r"^Package: (.*)\n(?:.+\n)*?Description: (.*)", said, re.MULTILINE)
    if not found:
        with open(os.path.join(SOURCE, "tools/demo/packages.tsv"), encoding="utf-8") as file:
            found = [line.rstrip("\n").split("\t")[:2] for line in file]
    return [f"{name}: {text}" for name, text in found]


def fortunes():
    for path in sorted(glob.glob("/usr/share/games/fortunes/*")):
        if os.path.isfile(path) and not path.endswith((".dat", ".u8")):
            with open(path, encoding="utf-8", errors="replace") as file:
                yield from (" ".join(part.split()) for part in file.read().split("\n%"))


def paragraphs(page):
    """Roughly the running text of a man page: requests that set a word in another font are text, all others end a
    paragraph."""
    lines = []
    for line in itertools.chain(page.splitlines(), ["."]):
        fonts = REQUEST.match(line)
        if fonts:
            line = fonts[1].replace('"', "")
        if line.strip() and line[0] not in ".'":
            lines.append(FONTS.sub("", line).replace("\\-", "-").strip())
        elif lines:
            yield " ".join(" ".join(lines).split())
            lines = []


def man_pages():
    for path in sorted(glob.glob("/usr/share/man/man*/*.gz")):
        if not os.path.islink(path):
            with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
                yield from (text for text in paragraphs(file.read()) if len(text) >= 20 and " " in text)


def rows(count):
    """`count` rows in mixed order, and how many of them are unmodified."""
    rng = random.Random(20261121)
    real = list(dict.fromkeys(itertools.chain(descriptions(), fortunes(), man_pages())))
    real = [text for text in real if text.strip() and "\n" not in text and "\r" not in text and "\0" not in text]
    rng.shuffle(real)
    out = real[:count]
    seen = set(out)
    while len(out) < count:  # joins the beginning of one text to another, which keeps the spread of lengths
        a, b = real[len(out) % len(real)].split(), rng.choice(real).split()
        cut = rng.randrange(len(a) + 1)
        text = " ".join(a[:cut] + b[:max(1, len(a) - cut)])
        if text not in seen:
            seen.add(text)
            out.append(text)
    return out, min(count, len(real))


def write_rows(count, path):
    out, real = rows(count)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(text + "\n" for text in out)
    return real


if __name__ == "__main__":
    print(f"{write_rows(int(sys.argv[1]), sys.argv[2]):,} of them are as they were written")
