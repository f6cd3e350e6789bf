#!/usr/bin/env python3
"""Compares ids with those of transformers for directories of tokenizer files: which class is named where, what its defaults
are, and which tokens the files beside tokenizer.json, vocab.txt or merges.txt add. The bar: the same ids, the same texts
decoded from them, with and without special tokens, the same special tokens, or a refusal that is expected below.

usage: directories_golden.py TOKENIZE_LINES WORK       compares with directories.json
       directories_golden.py --make WORK               writes directories.json; with transformers 5.23, which needs no torch
"""
import array
import json
import os
import pathlib
import shutil
import subprocess
import sys

REFERENCE = pathlib.Path(__file__).with_name("directories.json")
CONFIG, MAP, ADDED, MARK = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "\u2581"
TEXTS = ["Hello world", "café CAFÉ", "hello漢x <ent> world", "the [MASK] x", "a <mask> hello <s>NOTUSED </s>", "  hello  world ",
         "h<pad>e\u0085x [NEW] hellos.", "in 2026,½٣٤ x12</s>hello  hello",
         "[unk] [mask] [UNK] <ENT> x<Mask>"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "Hello", "##s", "h", "##e", "##l", "##o", "c", "caf", "##é", "café",
         "cafe", "漢", "x", "##x", "<", "ent", ">", "##漢", "##x2", "."]
MPNET_WORDS = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", *WORDS[5:], "<mask>"]
PAIRS = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "hello"), ("Ġ", "w")]
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# Classes and settings that Sluice does not know.
REFUSED = ["T5Tokenizer", "BertJapaneseTokenizer", "HerbertTokenizer", "NoSuchTokenizer", "merges: GPT2Tokenizer", "basic false",
           "split_special"]


def token(id, content, **flags):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **flags}


def decoder(*tokens):
    return {str(each["id"]): {key: value for key, value in each.items() if key != "id"} for each in tokens}


def template(first, last, vocabulary):
    special, text = lambda name, type: {"SpecialToken": {"id": name, "type_id": type}}, lambda name, type: {"Sequence": {"id": name, "type_id": type}}
    single = ([special(first, 0)] if first else []) + [text("A", 0), special(last, 0)]
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, text("B", 1), special(last, 1)],
            "special_tokens": {name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]} for name in (first, last) if name}}


def roberta_ends(prefix=False):
    return {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": prefix}


def whole(**parts):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": None, **parts}


def numbered(tokens):
    return {each: id for id, each in enumerate(tokens)}


def alphabet():
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]


def bert(lower=True, accents=None, chinese=True, post=True, chars=100):
    return whole(added_tokens=[token(i, WORDS[i]) for i in range(5)],
                 normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": chinese, "strip_accents": accents,
                             "lowercase": lower},
                 pre_tokenizer={"type": "BertPreTokenizer"}, post_processor=template("[CLS]", "[SEP]", numbered(WORDS)) if post else None,
                 model={"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": chars,
                        "vocab": numbered(WORDS)})


def mpnet(lower=True):
    file, vocabulary = bert(lower), numbered(MPNET_WORDS)
    file["model"]["vocab"], file["post_processor"] = vocabulary, roberta_ends()
    return {**file, "added_tokens": [*(token(i, MPNET_WORDS[i]) for i in range(5)), token(vocabulary["<mask>"], "<mask>", lstrip=True)]}


def byte_pairs(vocabulary, **fields):
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
            "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary, "merges": [" ".join(pair) for pair in PAIRS], **fields}


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def roberta(prefix=False, post=True):
    vocabulary = numbered(["<s>", "<pad>", "</s>", "<unk>", *alphabet(), *map("".join, PAIRS), "<mask>"])
    return whole(added_tokens=[*(token(i, name, normalized=True) for i, name in enumerate(["<s>", "<pad>", "</s>", "<unk>"])),
                               token(vocabulary["<mask>"], "<mask>", lstrip=True)],
                 pre_tokenizer=byte_level(prefix), post_processor=roberta_ends(prefix) if post else None, model=byte_pairs(vocabulary))


def xlmr(steps="words", normalizer=None, unknown=3):
    tokens = ["<s>", "<pad>", "</s>", "<unk>", MARK, f"{MARK}hello", f"{MARK}world", "hello", *"helowrdx", f"{MARK}H", "漢", ".", " ", *"caféCE", "<mask>"]
    tokens = list(dict.fromkeys(tokens))
    mark = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first" if steps == "first" else "always", "split": True}
    return whole(added_tokens=[*(token(i, tokens[i]) for i in range(4)), token(len(tokens) - 1, "<mask>", lstrip=True)], normalizer=normalizer,
                 pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, mark]} if steps == "words" else mark,
                 post_processor=template("<s>", "</s>", numbered(tokens)),
                 model={"type": "Unigram", "unk_id": unknown, "vocab": [[each, -float(i % 7 + 1)] for i, each in enumerate(tokens)],
                        "byte_fallback": False})


def qwen(regex=QWEN, normalizer={"type": "NFC"}, **fields):
    tokens = [*alphabet(), *map("".join, PAIRS)]
    added = [token(len(tokens), "<|endoftext|>"), token(len(tokens) + 1, "<|im_start|>"), token(len(tokens) + 2, "<think>", special=False)]
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return whole(added_tokens=added, normalizer=normalizer, pre_tokenizer={"type": "Sequence", "pretokenizers": [split, byte_level(regex=False)]},
                 post_processor={"type": "Sequence", "processors": [byte_level(regex=False),
                                                                    template(None, "<|endoftext|>", {"<|endoftext|>": len(tokens)})]},
                 model=byte_pairs(numbered(tokens), **fields))


def gemma(split=True):
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{byte:02X}>" for byte in range(256)), MARK, *"helowrd.x"]
    pairs = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), (MARK, "hello")]
    vocabulary = numbered([*tokens, *map("".join, pairs)])
    return whole(added_tokens=[token(i, tokens[i]) for i in range(5)], normalizer={"type": "Replace", "pattern": {"String": " "}, "content": MARK},
                 pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False} if split else None,
                 post_processor=template("<bos>", "<eos>", vocabulary),
                 model={**byte_pairs(vocabulary), "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "merges": [list(pair) for pair in pairs],
                        "continuing_subword_prefix": None, "end_of_word_suffix": None})


def llama(ends=("<s>", "</s>"), **fields):
    """As the files of Llama 2, TinyLlama and Mistral are."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), MARK, *"helowrd.xH"]
    pairs = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), (MARK, "hello"), (MARK, MARK)]
    vocabulary = numbered([*tokens, *map("".join, pairs)])
    first = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    second = [{"SpecialToken": {"id": "<s>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]
    steps = [{"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
             {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    return whole(added_tokens=[token(i, tokens[i]) for i in range(3)],
                 normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK},
                                                                 {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]},
                 post_processor={"type": "TemplateProcessing", "single": first, "pair": [*first, *second],
                                 "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
                 decoder={"type": "Sequence", "decoders": steps},
                 model={**byte_pairs(vocabulary), "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "merges": [" ".join(pair) for pair in pairs],
                        "continuing_subword_prefix": None, "end_of_word_suffix": None, **fields})


def digits(individual=True):
    """As SmolLM2's file is."""
    return {**qwen(normalizer=None), "decoder": byte_level(True), "post_processor": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": individual}, byte_level()]}}


def lines(words):
    return "".join(f"{word}\n" for word in words)


def merges():
    model = roberta()["model"]
    return {"vocab.json": model["vocab"], "merges.txt": "#version: 0.2\n" + lines(model["merges"])}


def family(name, **fields):
    return {"config.json": {"model_type": name, **fields}}


def named(name):
    return {"tokenizer_class": name} if name else {}


BERT, FILE = named("BertTokenizer"), named("PreTrainedTokenizerFast")
SPECIALS = [token(i, WORDS[i]) for i in range(5)]


def of_classes():
    cased, words = {"tokenizer.json": bert(False)}, {"vocab.txt": lines(WORDS)}
    for name in [None, "BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "ElectraTokenizerFast", "MobileBertTokenizer", "PreTrainedTokenizerFast",
                 "TokenizersBackend", "PreTrainedTokenizer", "MPNetTokenizer", "NoSuchTokenizer", "BertJapaneseTokenizer", "HerbertTokenizer"]:
        yield f"cased: {name}", {**cased, CONFIG: named(name)}
        yield f"cased: {name} in config.json", {**cased, **family("bert", **named(name))}
        yield f"vocab: {name}", {**words, CONFIG: named(name)}
        yield f"vocab: {name} in config.json", {**words, **family("bert", **named(name))}
    for name in [None, "BertTokenizer", "DistilBertTokenizer", "PreTrainedTokenizerFast"]:
        for model in ["distilbert", "modernbert", "nomic_bert", "new", "gte", "electra"]:
            yield f"cased, {model}: {name}", {**cased, CONFIG: named(name), **family(model)}
    for kind, file in {"accents": bert(True, False), "chinese": bert(True, None, False), "no template": bert(post=False), "short words": bert(chars=4)}.items():
        for config in (BERT, FILE):
            yield f"{kind}: {config['tokenizer_class']}", {"tokenizer.json": file, CONFIG: config}
    for name in [None, "MPNetTokenizer", "PreTrainedTokenizerFast", "BertTokenizer"]:
        for kind, file in {"": {"tokenizer.json": mpnet()}, " cased": {"tokenizer.json": mpnet(False)}, " vocab": {"vocab.txt": lines(MPNET_WORDS)}}.items():
            yield f"mpnet{kind}: {name}", {**file, CONFIG: named(name), **family("mpnet")}
    for name in [None, "RobertaTokenizer", "RobertaTokenizerFast", "PreTrainedTokenizerFast", "GPT2Tokenizer", "BartTokenizer", "LongformerTokenizer"]:
        for prefix in (False, True):
            for said in (None, False, True):
                config = named(name) if said is None else {**named(name), "add_prefix_space": said}
                yield f"roberta, blank {prefix}, config {said}: {name}", {"tokenizer.json": roberta(prefix), CONFIG: config, **family("roberta")}
        yield f"roberta, no template: {name}", {"tokenizer.json": roberta(post=False), CONFIG: named(name), **family("roberta")}
        yield f"merges: {name}", {**merges(), CONFIG: named(name), **family("roberta")}
        yield f"in config.json, merges: {name}", {**merges(), **family("roberta", **named(name))}
    files = {"words": xlmr(), "mark": xlmr("mark"), "first": xlmr("first"), "unknown 0": xlmr(unknown=0), "lower": xlmr(normalizer={"type": "Lowercase"}),
             "blanks": xlmr("mark", {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})}
    for name in [None, "XLMRobertaTokenizer", "XLMRobertaTokenizerFast", "CamembertTokenizer", "PreTrainedTokenizerFast", "T5Tokenizer"]:
        for model in ["xlm-roberta", "bert", "new"] if name != "CamembertTokenizer" else ["camembert"]:
            for kind, file in files.items():
                yield f"xlmr {kind}, {model}: {name}", {"tokenizer.json": file, CONFIG: named(name), **family(model)}
        for kind, fields in {"no blank": {"add_prefix_space": False}, "bos": {"bos_token": "</s>"}, "cls": {"cls_token": "</s>"}}.items():
            yield f"xlmr {kind}: {name}", {"tokenizer.json": xlmr(), CONFIG: {**named(name), **fields}, **family("xlm-roberta")}
    for name in [None, "Qwen2Tokenizer", "Qwen2TokenizerFast", "PreTrainedTokenizerFast"]:
        for kind, file in {"": qwen(), " as it is": qwen(normalizer=None), " numbers": qwen(QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|")),
                           " whole": qwen(ignore_merges=True)}.items():
            yield f"qwen{kind}: {name}", {"tokenizer.json": file, CONFIG: named(name), **family("qwen3")}
        hub = {"add_prefix_space": False, "add_bos_token": False, "pad_token": "<|endoftext|>", "eos_token": "<|im_start|>", "bos_token": None,
               "unk_token": None, "additional_special_tokens": ["<|im_start|>"], "added_tokens_decoder": decoder(*qwen()["added_tokens"]),
               "split_special_tokens": False, "errors": "replace"}
        for kind, fields in {"hub": hub, "pad": {"pad_token": "<ent>"}, "blank": {"add_prefix_space": True}}.items():
            yield f"qwen {kind}: {name}", {"tokenizer.json": qwen(), CONFIG: {**named(name), **fields}, **family("qwen3")}
    for name in [None, "GemmaTokenizer", "GemmaTokenizerFast", "PreTrainedTokenizerFast", "LlamaTokenizer"]:
        hub = {"add_bos_token": True, "add_eos_token": True, "bos_token": "<bos>", "eos_token": "<eos>", "boi_token": "<ent>", "sp_model_kwargs": None,
               "extra_special_tokens": {"boi_token": "<ent>"}, "added_tokens_decoder": decoder(*gemma()["added_tokens"])}
        for kind, fields in {"": {}, " hub": hub, " no ends": {"add_bos_token": False, "add_eos_token": False}}.items():
            yield f"gemma{kind}: {name}", {"tokenizer.json": gemma(), CONFIG: {**named(name), **fields}, **family("gemma3_text")}
        yield f"gemma, no split: {name}", {"tokenizer.json": gemma(False), CONFIG: named(name), **family("gemma3_text")}
    for model in ["llama", "mistral", "qwen2", "gemma3_text"]:
        for name in [None, "LlamaTokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast", "GPT2Tokenizer"]:
            ends = {"add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
            hub = {**ends, "legacy": False, "sp_model_kwargs": {}, "added_tokens_decoder": decoder(*llama()["added_tokens"]),
                   "use_default_system_prompt": False}
            for kind, fields in {"": {}, " ends": ends, " hub": hub, " legacy": {"legacy": True}, " null": {"legacy": None, "add_prefix_space": None},
                                 " no blank": {"add_prefix_space": False}, " no ends": {**ends, "add_bos_token": False},
                                 " both ends": {**ends, "add_eos_token": True}}.items():
                if model != "qwen2" and name != "GPT2Tokenizer":  # these would read its vocabulary as one of bytes
                    yield f"llama{kind}, {model}: {name}", {"tokenizer.json": llama(), CONFIG: {**named(name), **fields}, **family(model)}
            yield f"byte level, {model}: {name}", {"tokenizer.json": qwen(QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|"), None), CONFIG: named(name), **family(model)}
            yield f"digits, {model}: {name}", {"tokenizer.json": digits(), CONFIG: named(name), **family(model)}
            yield f"runs of digits, {model}: {name}", {"tokenizer.json": digits(False), CONFIG: named(name), **family(model)}


def of_files():
    """Each setting beside three vocabularies: of a class with its own steps, of one that follows tokenizer.json, and vocab.txt."""
    entity = {"__type": "AddedToken", "content": "<ent>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    bare = {"__type": "AddedToken", "content": "<ent>"}
    settings = {
        "lower false": {"do_lower_case": False}, "accents false": {"strip_accents": False}, "chinese false": {"tokenize_chinese_chars": False},
        "ends swapped": {"cls_token": "[SEP]", "sep_token": "[CLS]"}, "cls new": {"cls_token": "[NEW]"}, "mask new": {"mask_token": "<ent>"},
        "pad new": {"pad_token": "[NEW]"}, "unk x": {"unk_token": "x"}, "basic false": {"do_basic_tokenize": False}, "never_split": {"never_split": ["hello"]},
        "additional": {"additional_special_tokens": ["<ent>"]}, "additional none": {"additional_special_tokens": []},
        "additional word": {"additional_special_tokens": ["hello"]}, "extra": {"extra_special_tokens": ["<ent>"]}, "extra none": {"extra_special_tokens": {}},
        "extra names": {"extra_special_tokens": {"ent_token": "<ent>"}}, "extra objects": {"extra_special_tokens": [entity]}, "other name": {"ent_token": "<ent>"},
        "name null": {"image_token": None}, "bos": {"bos_token": "<ent>"}, "bos null": {"bos_token": None},
        "mask object": {"mask_token": {**entity, "content": "[MASK]"}}, "mask bare": {"mask_token": {**bare, "content": "[MASK]"}},
        "bos bare": {"bos_token": {**bare, "special": False}}, "extra bare": {"extra_special_tokens": [bare]},
        "extra normalized": {"extra_special_tokens": [{**bare, "normalized": True}]}, "other name bare": {"ent_token": bare},
        "other name normalized": {"ent_token": {**bare, "normalized": True, "special": False}}, "extra names bare": {"extra_special_tokens": {"ent_token": bare}},
        "additional bare": {"additional_special_tokens": [bare]},
        "decoder bare": {"added_tokens_decoder": {**decoder(*SPECIALS[:4]), "4": {"content": "[MASK]"}, "27": {"content": "<ent>"}}},
        "bos normalized": {"bos_token": {**bare, "content": "<ENT>", "normalized": True, "special": False}},
        "extra and additional": {"additional_special_tokens": ["<ent>"], "extra_special_tokens": ["[NEW]"]},
        "specific": {"model_specific_special_tokens": {"ent_token": "<ent>"}}, "ends": {"add_bos_token": True}, "split_special": {"split_special_tokens": True},
        "blank": {"add_prefix_space": True}}
    lists = {"same": decoder(*SPECIALS), "fewer": decoder(*SPECIALS[:4]), "none": {}, "entity": decoder(*SPECIALS, token(27, "<ent>")),
             "word": decoder(*SPECIALS, token(5, "hello")), "other id": decoder(*SPECIALS, token(40, "<ent>")),
             "mask strips": decoder(*SPECIALS[:4], {**SPECIALS[4], "lstrip": True}),
             "normalized": decoder(*SPECIALS, token(27, "<ENT>", normalized=True, special=False))}
    settings.update({f"decoder {kind}": {"added_tokens_decoder": content} for kind, content in lists.items()})
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    older = {"map additional": (MAP, {"additional_special_tokens": ["<ent>"]}), "map extra": (MAP, {"extra_special_tokens": ["<ent>"]}),
             "map same": (MAP, {f"{kind}_token": f"[{kind.upper()}]" for kind in ("cls", "sep", "unk", "pad", "mask")}), "map cls": (MAP, {"cls_token": "[SEP]"}),
             "map objects": (MAP, {f"{kind}_token": {"content": f"[{kind.upper()}]", **plain} for kind in ("cls", "sep", "mask")}),
             "map mask": (MAP, {"mask_token": {"content": "[MASK]", **plain, "lstrip": True}}), "map bos": (MAP, {"bos_token": "<ent>"}),
             "map known": (MAP, {"additional_special_tokens": ["[MASK]", "[CLS]"]}), "added": (ADDED, {"<ent>": 27}), "added other id": (ADDED, {"<ent>": 40}),
             "added two": (ADDED, {"<ent>": 28, "[NEW]": 27}), "added known": (ADDED, {"[MASK]": 4}), "added word": (ADDED, {"hello": 5}), "added none": (ADDED, {})}
    own, strips = bert(), bert()
    own["added_tokens"].append(token(27, "<ent>"))
    strips["added_tokens"].append(token(5, "hello", lstrip=True))
    for config, base in ((BERT, {"tokenizer.json": bert()}), (FILE, {"tokenizer.json": bert()}), (BERT, {"vocab.txt": lines(WORDS)})):
        name = f"{config['tokenizer_class']}, {[*base][0]}"
        for kind, fields in settings.items():
            yield f"config, {kind}: {name}", {**base, CONFIG: {**config, **fields}}
        for kind, (file, content) in older.items():
            yield f"{kind}: {name}", {**base, CONFIG: config, file: content}
            yield f"{kind}, and a decoder: {name}", {**base, CONFIG: {**config, "added_tokens_decoder": decoder(*SPECIALS)}, file: content}
        if "vocab.txt" not in base:
            yield f"own entity: {name}", {"tokenizer.json": own, CONFIG: config}
            yield f"own entity, not in the decoder: {name}", {"tokenizer.json": own, CONFIG: {**config, "added_tokens_decoder": decoder(*SPECIALS)}}
            yield f"own word: {name}", {"tokenizer.json": strips, CONFIG: config}


def directories():
    yield from of_classes()
    yield from of_files()


def write(work, files):
    folder = pathlib.Path(work) / "directory"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in {**family("bert"), **files}.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def make(work):
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers
    transformers.logging.set_verbosity_error()
    reference = {}
    for name, files in directories():
        assert name not in reference, name
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(write(work, files)))
            rows, decode = [tokenizer(text)["input_ids"] for text in TEXTS], tokenizer.backend_tokenizer.decode
            texts = [[decode(row, skip_special_tokens=skip) for row in rows] for skip in (False, True)]
            special = [id for id in tokenizer.get_vocab().values() if decode([id], skip_special_tokens=True) != decode([id], skip_special_tokens=False)]
            reference[name] = [rows, *texts, sorted(special)]
        except Exception:  # of many kinds: then there is nothing to compare
            reference[name] = None
    REFERENCE.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(content, separators=(',', ':'))}" for name, content in reference.items()) + "\n}\n")


def decoded(driver, folder, rows):
    """Returns our two texts of each row of ids: with special tokens and without."""
    data = array.array("i", [number for row in rows for number in (len(row), *row)]).tobytes()
    run = subprocess.run([driver, folder, "decode"], input=data, capture_output=True)
    if run.returncode != 0:
        raise SystemExit(f"{folder}: exit code {run.returncode}: {run.stderr.decode(errors='replace').strip()[-2000:]}")
    texts, at = [], 0
    while at < len(run.stdout):
        length = int.from_bytes(run.stdout[at:at + 4], sys.byteorder)
        texts.append(run.stdout[at + 4:at + 4 + length].decode())
        at += 4 + length
    assert len(texts) == 2 * len(rows)
    return list(zip(texts[::2], texts[1::2]))


def decoded_as(driver, folder, name, rows, texts, plain, special):
    """Compares the texts of the rows, and finds out which tokens are special."""
    top = max(max(special, default=0), max(max(row) for row in rows)) + 2
    mine = decoded(driver, folder, rows + [[id] for id in range(top)])
    found = [id for id, (one, other) in enumerate(mine[len(rows):]) if one != other]
    if mine[:len(rows)] == list(zip(texts, plain)) and found == special:
        return True
    print(f"{name}: decoded\n  ours   {ascii(mine[:len(rows)])} {found}\n  theirs {ascii(list(zip(texts, plain)))} {special}")
    return False


def compare(driver, work):
    reference, wrong, refused, same, more = json.loads(REFERENCE.read_text()), 0, 0, 0, 0
    for name, files in directories():
        run = subprocess.run([driver, write(work, files), "1000000"], input="".join(f"{text}\0" for text in TEXTS).encode(), capture_output=True)
        flat, rows, at = [int.from_bytes(run.stdout[i:i + 4], sys.byteorder) for i in range(0, len(run.stdout), 4)], [], 0
        while at < len(flat):
            rows.append(flat[at + 1:at + 1 + flat[at]])
            at += 1 + flat[at]
        content, message = reference.pop(name), run.stderr.decode().strip()
        expected = content[0] if content else None
        may = expected is None or any(each in name for each in REFUSED)
        if run.returncode == 1 and may and ("tokenizer" in message or "vocab" in message):
            refused += 1
        elif run.returncode == 0 and expected is None:
            more += 1
        elif run.returncode == 0 and rows == expected and decoded_as(driver, pathlib.Path(work) / "directory", name, *content):
            same += 1
        else:
            wrong += 1
            print(f"{name}: exit code {run.returncode} {message}")
            for text, mine, theirs in zip(TEXTS, rows, expected or []):
                if mine != theirs:
                    print(f"  {ascii(text)}\n    ours   {mine}\n    theirs {theirs}")
    print(f"{same + more + refused + wrong} directories: {same} as in transformers, {more} that transformers does not open, "
          f"{refused} refused, {wrong} differ")
    assert not reference, f"not compared: {list(reference)}"
    return wrong > 0


if __name__ == "__main__":
    sys.exit(make(sys.argv[2]) if sys.argv[1] == "--make" else compare(*sys.argv[1:3]))
