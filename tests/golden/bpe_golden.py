#!/usr/bin/env python3
"""Compares Sluice's ids of BPE tokenizers with those of the `tokenizers` package. The bar: not one differs.

usage: bpe_golden.py TOKENIZE_LINES CORPUS WORK [EVERY]
The arguments are those of tokenizer_golden.py, whose texts it shares. EVERY: only every EVERY-th text is compared; 1
takes minutes, and says how fast both are.
"""
import json
import pathlib
import random
import sys
import time

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

import texts as made
from tokenizer_golden import Comparison, speed

TRAINED, LARGE, LETTERS_LARGE = 50_000, 151_000, 262_144
MARK = "\u2581"
CONTRACTIONS, BLANKS = "'s|'t|'re|'ve|'m|'ll|'d", r"\s+(?!\S)|\s+"
GPT2 = CONTRACTIONS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|" + BLANKS
QWEN2 = f"(?i:{CONTRACTIONS})" + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" + BLANKS
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")
CL100K = f"(?i:{CONTRACTIONS})" + r"|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|" + BLANKS


def train(lines, letters=False):
    """A vocabulary of GPT-2's size: the bytes, then what merges make. `letters`: the bytes for `byte_fallback` and the commonest
    characters, then what merges make of words that begin with the mark, as sentencepiece trains."""
    tokenizer = Tokenizer(models.BPE())
    if letters:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
        kinds = {"limit_alphabet": 3000, "special_tokens": ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{b:02X}>" for b in range(256))]}
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        kinds = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    trainer = trainers.BpeTrainer(vocab_size=TRAINED, show_progress=False, **kinds)
    tokenizer.train_from_iterator(lines, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def enlarge(vocabulary, merges, size, within=None):
    """A vocabulary of Qwen2's or Gemma's size: adds merges of existing tokens, some of whose results are tokens already.
    `within`: no added merge has this character in its right part."""
    rng = random.Random(20)
    vocabulary, merges = dict(vocabulary), list(merges)
    tokens, known = list(vocabulary)[:20_000], set(merges)
    ends = tokens[:5_000]
    while len(vocabulary) < size:
        left, right = rng.choice(tokens), rng.choice(ends)
        if (left, right) not in known and len(left + right) <= 24 and not (within and within in right):
            known.add((left, right))
            merges.append((left, right))
            vocabulary.setdefault(left + right, len(vocabulary))
    return vocabulary, merges


def byte_level(prefix=False, **fields):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, **fields}


def split(regex):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
        byte_level(use_regex=False)]}


def token(content, normalized=False, **flags):
    return AddedToken(content, normalized=normalized, **flags)


ROBERTA = [token(t, special=True) for t in ("<s>", "<pad>", "</s>", "<unk>")] + [token("<mask>", lstrip=True, special=True)]
QWEN = [token(t, special=True) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")] + [token("<think>")]
MODERN = ([token(t, special=True) for t in ("[CLS]", "[SEP]", "[UNK]", "[PAD]")] + [token("[MASK]", lstrip=True, special=True)]
          + [token(" " * n, True) for n in range(24, 1, -1)] + [token("|||IP_ADDRESS|||", True), token("É!", True, lstrip=True)])
STRANGE = [token("Foo", single_word=True), token("<t>", lstrip=True, rstrip=True), token("É!", True, rstrip=True),
           token("a b", True), token("7", True, rstrip=True), token("漢", True, lstrip=True), token("A.", True, single_word=True)]
GEMMA = ([token(t, special=True) for t in ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_turn>")]
         + [token(c * n) for c in ("\n", MARK, "\t") for n in range(2, 17)] + [token("<table>")])
NFC = {"type": "NFC"}
BLANKS_MARKED = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
DECODER = {"type": "Sequence", "decoders": [{**BLANKS_MARKED, "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"},
                                           {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
BEHIND = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
LONG = ("roberta", "qwen2", "gemma")  # these get the long texts, which take the package most of the time
# name: normalizer, pre_tokenizer, added tokens, the tokens before and behind a text, and how the model is written.
FILES = {
    "roberta": (None, byte_level(), ROBERTA, ("<s>", "</s>"), {"pairs": False, "empty": ""}),
    "gpt2-prefix": (None, byte_level(True), STRANGE, None, {"pairs": True}),
    "modernbert": (NFC, byte_level(use_regex=True), MODERN, ("[CLS]", "[SEP]"), {"pairs": True}),
    "qwen2": (NFC, split(QWEN2), QWEN, (None, "<|endoftext|>"), {"pairs": False, "of": "large"}),
    "qwen2-strange": ({"type": "Sequence", "normalizers": [NFC]}, split(QWEN2), STRANGE, None, {"pairs": True, "of": "large"}),
    "llama3": (None, split(LLAMA3), QWEN, None, {"pairs": True, "of": "large", "ignore_merges": True}),
    "cl100k": (None, split(CL100K), [], None, {"pairs": False}),
    "gemma": (BLANKS_MARKED, BEHIND, GEMMA, ("<bos>", "<eos>"), {"pairs": True, "of": "words"}),
    "gemma-small": (BLANKS_MARKED, None, GEMMA, ("<bos>", "<eos>"), {"pairs": False, "of": "letters"}),
    "behind": (NFC, {"type": "Sequence", "pretokenizers": [BEHIND, {**BEHIND, "pattern": {"String": "er"}}]}, STRANGE, None,
               {"pairs": True, "of": "across", "ignore_merges": True}),
    "prepended": ({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK}, BLANKS_MARKED]}, None, STRANGE, None,
                  {"pairs": False, "of": "across", "ignore_merges": True}),
    "metaspace": (None, {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False}, STRANGE, None,
                  {"pairs": False, "of": "letters"}),
    "smollm2": (None, {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level()]}, QWEN, None,
                {"pairs": False}),
    "digits": (None, {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": False}, byte_level()]}, STRANGE, None,
               {"pairs": True}),
    "gpt2-split": (None, split(GPT2), [], None, {"pairs": False, "ignore_merges": True}),
}


def numbered(vocabulary, added):
    """The tokens as a tokenizer.json lists them: those of the vocabulary keep its numbers, the others follow it."""
    fields = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    ids = dict(vocabulary)
    for each in added:
        ids.setdefault(each.content, len(ids))
    listed = [{"id": ids[each.content], **{name: getattr(each, name) for name in fields}} for each in added]
    return sorted(listed, key=lambda each: each["id"])


def processor(ends, ids):
    if not ends:
        return byte_level()
    before, behind = ends
    if before == "<s>":
        return {"type": "RobertaProcessing", "sep": [behind, ids[behind]], "cls": [before, ids[before]],
                "trim_offsets": True, "add_prefix_space": False}
    def special(name):
        return [{"SpecialToken": {"id": name, "type_id": 0}}] if name else []
    text = {"Sequence": {"id": "A", "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": [*special(before), text, *special(behind)],
                "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in ends if name}}
    return {"type": "Sequence", "processors": [byte_level(), template]}


def build(vocabulary, merges, normalizer, pre_tokenizer, added, ends, pairs, of="small", empty=None, ignore_merges=False):
    letters = of in ("letters", "words", "across")
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>" if letters else None, "continuing_subword_prefix": empty,
             "end_of_word_suffix": empty, "fuse_unk": letters, "byte_fallback": letters, "ignore_merges": ignore_merges,
             "vocab": vocabulary, "merges": [list(merge) if pairs else " ".join(merge) for merge in merges]}
    content = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": normalizer,
               "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": DECODER if letters else byte_level(True),
               "model": model}
    content["added_tokens"] = numbered(vocabulary, added)
    content["post_processor"] = processor(ends, {each["content"]: each["id"] for each in content["added_tokens"]})
    return content


def configurations(small, letters, work):
    """Yields (name, model folder, the package's tokenizer)."""
    models = {"small": small, "large": enlarge(*small, LARGE), "letters": letters,
              "words": enlarge(*letters, LETTERS_LARGE, MARK), "across": enlarge(*letters, LETTERS_LARGE)}
    for name, parts in FILES.items():
        folder = work / f"bpe-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        content = build(*models[parts[-1].get("of", "small")], *parts[:-1], **parts[-1])
        (folder / "tokenizer.json").write_text(json.dumps(content))
        yield name, folder, Tokenizer.from_file(str(folder / "tokenizer.json"))
    folder = work / "bpe-merges"
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {token: number for number, token in enumerate([*small[0], *(each.content for each in ROBERTA)])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in small[1]))
    normalizer, steps, _, ends, more = FILES["roberta"]
    # The mask takes white space only where a file says so.
    parts = normalizer, steps, [token(each.content, special=True) for each in ROBERTA], ends
    yield "merges", folder, Tokenizer.from_str(json.dumps(build(vocabulary, small[1], *parts, **more)))


def hard_texts():
    """Contractions and blanks beside everything that matters to a pattern, and pieces of any length."""
    rng = random.Random(21)
    pool = ["'", "s", "S", "t", "ll", "LL", "re", "rE", "ſ", " ", "  ", "\n", "\r\n", "\t", "\u3000", "\xa0", "1", "23", "4567",
            "٣", "é", "e\u0301", "漢", "!", "?!", "Ⅷ", "²", "a", "Bc", "\u2028", "\x85", "-", "😀", "\u0301", "각", "ᄀ", "ᅡ", "ᆨ", "가",
            MARK, "<0x0A>", "<0", "x41>", "er", "\U0001d400", "\ue000"]
    mixed = ["".join(rng.choices(pool, k=rng.randint(1, 25))) for _ in range(40_000)]
    beside = [f"a'{chr(c)}z 'r{chr(c)} \n{chr(c)}b  {chr(c)}{chr(c)}\r\n x" for c in range(1, 0x3000)]
    tokens = [" a<mask>", "a  <mask> b", "<mask><mask>", "  [MASK]  ", "a [MASK]b", "x É! y", "a\u0301 E\u0301! b", "a b", "xa by", "漢 漢",
              "<t> a <t>", "Foo aFoo Foo", "<|endoftext|>\n<|im_start|>", "  " * 40, "a" + " " * 30 + "b", "A.b A. A.", "|||IP_ADDRESS|||",
              "a b " * 1000, "abcFoo7 " * 1000]
    long = ["a" * 1_000_000, "ab" * 300_000, " " * 300_000 + "x", "!?" * 100_000, "漢字" * 100_000, "word 12 " * 30_000, "1" * 100_000,
            "\n" * 100_000, "\u0301" * 100_000, "\ue000" * 100_000, "".join(rng.choices("abcdefgh", k=300_000))]
    lengths = ["".join(rng.choices("etaoin", k=n)) for n in [*range(1, 140)] * 3]
    names = [each.content for each in ROBERTA + QWEN + MODERN[:5] + GEMMA + STRANGE]
    return long, tokens + lengths[:60] + mixed + beside + lengths[60:] + made.adversarial_texts(names)


def main():
    driver, corpus, work = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    every = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    comparison = Comparison(driver)
    real = [line for lines in made.real_texts(corpus, 3200).values() for line in lines]
    long, hard = hard_texts()
    small, letters = train(real[::7]), train(real[::7], letters=True)
    print(f"{len(real)} real lines, {len(hard)} made to be hard; {len(small[0])} and {len(letters[0])} tokens after {time.monotonic() - comparison.started:.0f} s")
    for number, (name, folder, tokenizer) in enumerate(configurations(small, letters, work)):
        lines = hard[:60] + (real + hard[60:])[number % every::every] + (long if name in LONG else [])
        if every == 1:
            speed(driver, name, folder, tokenizer, real)
        comparison.run(name, folder, tokenizer, lines)
    return comparison.end()


if __name__ == "__main__":
    sys.exit(main())
