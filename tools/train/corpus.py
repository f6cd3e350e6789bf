"""Read the data from Debian: package descriptions (apt lists) and WordNet."""
import glob
import os
import re
import subprocess
from dataclasses import dataclass, field


@dataclass
class Package:
    name: str
    source: str
    section: str
    tags: list
    summary: str
    description: str

    @property
    def title(self):
        return f"{self.name}: {self.summary}"


def read_list(path):
    """Text of an apt list in any of apt's compression formats."""
    helper = "/usr/lib/apt/apt-helper"
    out = subprocess.run([helper, "cat-file", path], check=True, capture_output=True)
    return out.stdout.decode("utf-8", "replace")


def stanzas(text):
    """Yield each paragraph of a control file as a dict; continuation lines stay joined by \\n."""
    for block in text.split("\n\n"):
        entry, key = {}, None
        for line in block.split("\n"):
            if line[:1] == " " and key:
                entry[key] += "\n" + line
            elif ": " in line:
                key, value = line.split(": ", 1)
                entry[key] = value
        if entry:
            yield entry


def flatten(body):
    """A long description as one line: paragraphs and bullets become sentences."""
    text = ""
    for line in body.split("\n"):
        line = line.strip()
        if line == ".":
            line = ""
        bullet = re.match(r"[-*o+•]\s+(.*)", line)
        breaks = bullet or not line
        if breaks and text and text[-1] not in ".:;,!?":
            text += "."
        line = bullet.group(1) if bullet else line
        if line:
            text += (" " if text else "") + line
    return re.sub(r"\s+", " ", text).strip()


def read_packages(lists):
    """All packages of the release's main archive with English descriptions, sorted by name."""
    binary = sorted(glob.glob(os.path.join(lists, "*_dists_bookworm_main_binary-amd64_Packages*")))
    english = sorted(glob.glob(os.path.join(lists, "*_dists_bookworm_main_i18n_Translation-en*")))
    bodies = {}
    for entry in stanzas(read_list(english[0])):
        if "Description-en" in entry:
            summary, _, body = entry["Description-en"].partition("\n")
            bodies[entry["Package"]] = (summary.strip(), flatten(body))
    found = {}
    for entry in stanzas(read_list(binary[0])):
        name = entry.get("Package")
        if name not in bodies:
            continue
        tags = [t.strip() for t in entry.get("Tag", "").replace("\n", " ").split(",") if t.strip()]
        source = entry.get("Source", name).split(" ")[0]
        found[name] = Package(name, source, entry.get("Section", "misc"), tags, *bodies[name])
    return [found[name] for name in sorted(found)]


@dataclass
class Synset:
    lemmas: list
    pos: str
    gloss: str
    examples: list
    hypernyms: list = field(default_factory=list)
    derived: list = field(default_factory=list)  # (own lemma, other synset id, other's lemma no)


@dataclass
class WordNet:
    synsets: dict  # id -> Synset
    senses: dict  # (word, pos) -> synset ids, most frequent sense first

    def synonyms(self, word, pos):
        ids = self.senses.get((word, pos), ())[:1]
        return [w for i in ids for w in self.synsets[i].lemmas if w.lower() != word]

    def verb_of(self, noun):
        """The verb an agent noun derives from: editor -> edit, viewer -> view."""
        for i in self.senses.get((noun, "n"), ()):
            for own, other, number in self.synsets[i].derived:
                if own.lower() == noun and other[0] == "v":
                    verb = self.synsets[other].lemmas[number - 1]
                    if verb[:3] == noun[:3]:
                        return verb
        return None


def parse_synset(line, pos):
    head, _, text = line.partition("|")
    parts = head.split()
    count = int(parts[3], 16)
    lemmas = [re.sub(r"\(.*\)$", "", parts[4 + 2 * i]).replace("_", " ") for i in range(count)]
    at = 4 + 2 * count
    hypernyms, derived = [], []
    for i in range(int(parts[at])):
        symbol, offset, kind, ends = parts[at + 1 + 4 * i: at + 5 + 4 * i]
        if symbol == "@":
            hypernyms.append(kind + offset)
        elif symbol == "+":
            derived.append((lemmas[int(ends[:2], 16) - 1], kind + offset, int(ends[2:], 16)))
    examples = [e for e in re.findall(r'"([^"]+)"', text) if len(e.split()) > 2]
    gloss = text.split('"')[0].strip(" ;\n")
    return pos + parts[0], Synset(lemmas, pos, gloss, examples, hypernyms, derived)


def read_wordnet(folder):
    synsets, senses = {}, {}
    for pos, name in (("n", "noun"), ("v", "verb"), ("a", "adj"), ("r", "adv")):
        with open(os.path.join(folder, "data." + name), encoding="utf-8") as lines:
            synsets.update(parse_synset(x, pos) for x in lines if x[:2] != "  ")
        with open(os.path.join(folder, "index." + name), encoding="utf-8") as lines:
            for parts in (x.split() for x in lines if x[:2] != "  "):
                ids = [pos + o for o in parts[-int(parts[2]):]]
                senses[parts[0].replace("_", " "), pos] = ids
    return WordNet(synsets, senses)
