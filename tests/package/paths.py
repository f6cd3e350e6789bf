"""Looks for paths that lead nowhere in installed pages, comments, alerts and units."""

import os
import re

COMMON = "/usr/local"  # the prefix that the source's paths have


def installed_files(root, prefix):
    """(path, text) of every text file, without those for Kubernetes, whose image has a prefix of its own."""
    for folder in ("share/doc/sluice", "share/sluice", "lib/systemd/system"):
        for at, _, names in os.walk(os.path.join(root + prefix, folder)):
            for name in names:
                path = os.path.join(at, name)
                if name.endswith((".md", ".json", ".conf", ".sh", ".yml", ".acl", ".service")) and not re.search("/kubernetes/|/models/.*json$", path):
                    with open(path, encoding="utf-8") as file:
                        yield path, file.read()


def anchors(text):
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"(?m)^#+ (.*)$", text)}


def leads_nowhere(root, prefix):
    """Each wrong path in the installed files, with its file; and the number of paths."""
    texts, wrong, count = dict(installed_files(root, prefix)), [], 0

    def look(path, target, anchor=""):
        nonlocal count
        count += 1
        if not os.path.exists(target) or (anchor and anchor not in anchors(texts[os.path.realpath(target)])):
            wrong.append((path.removeprefix(root), target.removeprefix(root) + anchor))

    for path, text in texts.items():
        for link in re.findall(r"\]\(([^)\s]+)\)", text) if path.endswith(".md") else []:
            if not link.startswith("https://"):
                name, _, anchor = link.partition("#")
                look(path, (root if name.startswith("/") else os.path.dirname(path) + "/") + name if name else path, anchor)
        for name, anchor in re.findall(rf"(?<![\w.])({re.escape(prefix)}/(?:bin|share|lib)/[\w./-]*\w)(?:#([\w-]+))?", text):
            look(path, root + name, anchor)
        if not path.endswith("/architecture.md"):
            wrong += [(path.removeprefix(root), name) for name in re.findall(r"(?<![/\w.])config/[a-z][\w./-]*", text)]
        if prefix != COMMON:
            wrong += [(path.removeprefix(root), name) for name in re.findall(rf"{COMMON}/(?:bin|share|lib)\S*", text)]
    return wrong, count
