"""Writes one table on stdout and one JSON file, line by line, because a run may be cut short; and knows whether all checks
have passed."""
import json
import pathlib


class Report:
    def __init__(self, path, machine):
        self.path = pathlib.Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.content = {"machine": machine, "numbers": [], "speed": [], "absent": [], "failures": [], "notes": []}
        print(" | ".join(f"{key} {value}" for key, value in machine.items()), flush=True)

    def _line(self, verdict, title, text):
        print(f"{verdict:6} {title:44} {text}", flush=True)
        self._save()

    def _save(self):
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.content, indent=1) + "\n")
        new.replace(self.path)

    def number(self, title, good, **values):
        """Notes a check of numbers: passed or not."""
        self.content["numbers"].append({"title": title, "good": bool(good), **values})
        text = f"{values['rows']} rows"
        if "worst" in values:
            text += f", worst cosine 1 - {values['worst']:.1e} (bar {values['bar']:.0e}), number off by {values['off']:.1e}"
        text += f", one text apart by {values['apart']:.1e} (bar {values['apart_bar']:.0e})"
        if not good:
            self.content["failures"].append(title)
        self._line("ok" if good else "WRONG", title, text)

    def fail(self, title, why):
        self.content["failures"].append(f"{title}: {why}")
        self._line("WRONG", title, why)

    def absent(self, title, why, counts):
        """Notes something that could not be run here. `counts`: the check is not complete without it."""
        self.content["absent"].append({"title": title, "why": why})
        self._line("-", title, f"not here: {why}")
        if counts:
            self.content["failures"].append(f"{title}: not here: {why}")

    def speed(self, title, text, **values):
        self.content["speed"].append({"title": title, **values})
        self._line("", title, text)

    def note(self, text):
        self.content["notes"].append(text)
        print(text, flush=True)

    def table(self, header, rows):
        """Columns as wide as their cells; printed once, at the end, where readers find it."""
        cells = [header, *rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
        for row in cells:
            print(" | ".join(f"{cell:>{width}}" for cell, width in zip(row, widths)), flush=True)

    def close(self):
        """The process' exit code."""
        self._save()
        checked = len(self.content["numbers"])
        if self.content["failures"]:
            print(f"FAILED: {len(self.content['failures'])} of what was checked; all of it: {self.path}")
            for failure in self.content["failures"]:
                print(f"  {failure}")
            return 1
        print(f"{checked} checks of numbers passed, {len(self.content['speed'])} figures; all of it: {self.path}")
        return 0
