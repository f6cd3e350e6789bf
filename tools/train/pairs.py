"""Turn packages and WordNet into pairs of texts that mean the same.

Three families, each trained in batches of its own:
  desc   summary or title <-> long description, parts of a description with each other
  query  a short made-up query <-> a package's title ("name: summary")
  word   WordNet: words, glosses, examples, broader terms
"""
import math
import random
import re

STOP = frozenset("""a an and any are as at be by can for from has have in into is it its of on or
other such that the their them this those to use used using via was which will with you your
package contains provides provide also not all these more files program library based written
support""".split())

# Plain words for debtags' use:: and works-with:: values.
VERBS = {
    "analysing": "analyse|examine", "browsing": "browse|explore", "calculating": "calculate|compute",
    "chatting": "chat|talk to people", "checking": "check|verify", "comparing": "compare",
    "compressing": "compress|shrink", "configuring": "configure|set up", "converting": "convert",
    "downloading": "download|fetch", "editing": "edit|change|modify", "filtering": "filter",
    "learning": "learn|teach", "measuring": "measure", "monitor": "monitor|watch",
    "organizing": "organize|manage|sort", "playing": "play", "printing": "print",
    "proxying": "proxy", "routing": "route", "scanning": "scan", "searching": "search|find",
    "simulating": "simulate", "storing": "store|save|keep", "synchronizing": "synchronize|sync",
    "text-formatting": "format", "timekeeping": "keep track of time", "transmission": "send|transfer",
    "typesetting": "typeset|lay out", "viewing": "view|show|look at|display",
    "gameplaying": "play a game", "login": "log in", "entertaining": "have fun"}
OBJECTS = {
    "3dmodel": "3d models", "archive": "archives|compressed files", "audio": "music|sound|songs|audio files",
    "biological-sequence": "dna sequences|biological sequences", "bugs": "bug reports", "calendar": "calendars",
    "db": "databases", "dictionary": "dictionaries|words", "dtp": "page layouts", "fax": "faxes",
    "file": "files", "font": "fonts", "graphs": "graphs", "im": "instant messages",
    "image": "images|pictures", "image:raster": "images|pictures|photos",
    "image:vector": "vector graphics|drawings", "logfile": "log files", "mail": "mail|e-mail|messages",
    "music-notation": "sheet music|musical scores", "network-traffic": "network traffic",
    "people": "contacts|addresses", "pim": "personal information|contacts",
    "software:package": "software packages", "software:running": "running programs|processes",
    "software:source": "source code", "spreadsheet": "spreadsheets|tables", "text": "text|documents",
    "unicode": "unicode text", "vcs": "versions of source code", "video": "videos|movies|films"}
TOPIC_FACETS = frozenset("""game admin hardware protocol security devel network works-with-format
sound field mail science accessibility web office made-of works-with""".split())
PURPOSE = re.compile(
    r"\b(?:allow(?:s|ing)? (?:you|users?|one|the user) to|lets? (?:you|users?)|(?:can|may) be used to"
    r"|(?:is|are) used to|helps? (?:you )?(?:to )?|(?:tool|program|application|utility|software|game)s?"
    r" (?:to|for|that|which)|(?:possible|ability|able|designed|intended|allows|enables you) to"
    r"|(?:useful|suitable|used|intended|designed) (?:for|when))\s+([a-z][^.,;:()\[\]]{7,70})", re.I)


def words_of(text):
    return re.findall(r"[a-z0-9][a-z0-9+#'-]*", text.lower())


def sentences(text):
    return [s for s in re.split(r"(?<=[.!?])\s+(?=[A-Z0-9(\"])", text) if len(s.split()) > 3]


def plural(word):
    if word.endswith(("s", "x", "ch", "sh")):
        return word
    return word[:-1] + "ies" if word.endswith("y") and word[-2:-1] not in "aeou" else word + "s"


# Sections few people ask for in free words: their made-up queries weigh less.
DRY = frozenset("""libs libdevel doc debug oldlibs localization introspection perl python rust golang
javascript java haskell ruby ocaml lisp gnu-r php cli-mono kernel metapackages fonts""".split())


def description_pairs(package, rng):
    """Summary and title against the description, and parts of the description."""
    text, out = package.description, [(package.summary, package.description, 1.0)]
    out.append((package.title, text, 0.35))
    parts = sentences(text)
    if len(parts) > 1:
        middle = len(parts) // 2
        out.append((" ".join(parts[:middle]), " ".join(parts[middle:]), 0.25))
        pick = rng.randrange(len(parts))
        rest = " ".join(parts[:pick] + parts[pick + 1:])
        out.append((parts[pick], rest, 0.35))
        out.append((package.summary, rest, 0.35))
    return out


def purpose_queries(package):
    """The purposes that the description names: "allows you to EDIT PHOTOS WITH LAYERS"."""
    for match in PURPOSE.finditer(package.summary + ". " + package.description):
        words = match.group(1).split()
        for end in (3, 5, 8):
            if len(words) >= end or (end == 3 and len(words) == 2):
                cut = words[:end]
                while cut and cut[-1].lower() in STOP:
                    cut.pop()
                if len(cut) > 1:
                    yield " ".join(cut)


def agent_queries(package, wordnet):
    """"simple image viewer" -> "view images"; "editor for maps" -> "edit maps"."""
    words = words_of(package.summary)
    for i, word in enumerate(words):
        verb = wordnet.verb_of(word) if word.endswith(("er", "or")) else None
        if not verb:
            continue
        after = words[i + 1: i + 5]
        if after[:1] == ["for"] or after[:1] == ["of"]:
            yield verb + " " + " ".join(after[1:])
        elif i and words[i - 1] not in STOP:
            thing = words[i - 1]
            yield f"{verb} {plural(thing)}"
            for other in wordnet.synonyms(thing, "n")[:3]:
                yield f"{verb} {plural(other)}"
            for other in wordnet.synonyms(verb, "v")[:2]:
                yield f"{other} {plural(thing)}"


def tag_queries(package, rng):
    """Plain words for debtags: use::viewing and works-with::image -> "look at pictures"."""
    facets = [t.split("::", 1) for t in package.tags if "::" in t and "TODO" not in t]
    verbs = [v for f, t in facets if f == "use" for v in VERBS.get(t, "").split("|") if v]
    things = [o for f, t in facets if f == "works-with" for o in OBJECTS.get(t, "").split("|") if o]
    for _ in range(min(4, len(verbs) * len(things))):
        yield rng.choice(verbs) + " " + rng.choice(things)
    topics = [t.replace(":", " ").replace("-", " ") + (" " + f if f in ("game", "web", "mail") else "")
              for f, t in facets if f in TOPIC_FACETS and t not in ("library", "client", "server")]
    if topics:
        yield rng.choice(topics)
        yield " ".join(rng.sample(topics, min(2, len(topics))) + rng.sample(verbs, min(1, len(verbs))))


def reworded(text, wordnet, rng):
    """The text with words replaced by synonyms of their most frequent sense."""
    out, changed = [], False
    for word in words_of(text):
        other = wordnet.synonyms(word, rng.choice("nnva")) if len(word) > 3 else None
        if other and rng.random() < 0.6:
            out.append(rng.choice(other).lower())
            changed = True
        elif word not in STOP or rng.random() < 0.5:
            out.append(word)
    return " ".join(out) if changed else None


def keyword_queries(package, rarity, rng):
    """A few characteristic words of the description, and one short stretch of it."""
    words = words_of(package.description)
    own = set(words_of(package.title))
    telling = sorted({w for w in words if w not in STOP and w not in own and len(w) > 2},
                     key=lambda w: (-words.count(w) * rarity.get(w, 0), w))[:10]
    for _ in range(2 if len(telling) > 3 else 0):
        yield " ".join(rng.sample(telling, rng.randint(2, 4)))
    if len(words) > 8:
        start = rng.randrange(len(words) - 6)
        yield " ".join(words[start: start + rng.randint(3, 6)])


def query_pairs(package, wordnet, rarity, rng):
    title, summary = package.title, package.summary
    name = re.sub(r"[-_.+]+", " ", package.name)
    out = [(name, summary, 0.3)]
    out += [(q, title, 0.8) for q in purpose_queries(package)]
    out += [(q, title, 0.8) for q in agent_queries(package, wordnet)]
    out += [(q, title, 0.6) for q in tag_queries(package, rng)]
    out += [(q, title, 0.35) for q in keyword_queries(package, rarity, rng)]
    short = [w for w in words_of(summary) if w not in STOP]
    if len(short) > 3:
        out.append((" ".join(rng.sample(short, rng.randint(2, 3))), title, 0.3))
    for _ in range(2):
        other = reworded(summary, wordnet, rng)
        if other:
            out.append((other, title, 0.4))
    return out


def wordnet_pairs(wordnet, rng):
    """(left, right, key, weight): the key says which pairs must not be negatives of each other."""
    for key, synset in wordnet.synsets.items():
        words = [w.lower() for w in synset.lemmas]
        if any(c.isdigit() for c in words[0]) or not synset.gloss:
            continue
        proper = synset.lemmas[0][:1].isupper()
        weight = 0.25 if proper else 1.0
        yield words[0], synset.gloss, key, weight
        if len(words) > 1:
            yield rng.choice(words[1:]), synset.gloss, key, weight
            pair = rng.sample(words, 2)
            yield pair[0], pair[1], key, weight
        for example in synset.examples[:3]:
            yield example, synset.gloss, key, 1.0
        for other in synset.hypernyms[:1]:
            if not proper and other in wordnet.synsets:
                yield rng.choice(words), wordnet.synsets[other].gloss, other, 0.3
        for own, other, number in synset.derived[:2]:
            near = wordnet.synsets.get(other)
            if near and 0 < number <= len(near.lemmas):
                yield own.lower(), near.lemmas[number - 1].lower(), key, 0.4


def rarities(packages):
    """Inverse document frequency of the words of the descriptions."""
    counts = {}
    for package in packages:
        for word in set(words_of(package.description)):
            counts[word] = counts.get(word, 0) + 1
    return {w: math.log(len(packages) / n) for w, n in counts.items() if n > 1}


def all_pairs(packages, wordnet, seed):
    """Yield (family, left, right, key, section, weight) over the whole training set."""
    rng = random.Random(seed)
    rarity = rarities(packages)
    for package in packages:
        source, section = package.source, package.section
        if len(package.description.split()) > 5:
            for left, right, weight in description_pairs(package, rng):
                yield "desc", left, right, source, section, weight
        favour = 0.35 if section in DRY else 1.5
        for left, right, weight in query_pairs(package, wordnet, rarity, rng):
            yield "query", left, right, source, section, weight * favour
    for left, right, key, weight in wordnet_pairs(wordnet, rng):
        yield "word", left, right, key, "wordnet", weight
