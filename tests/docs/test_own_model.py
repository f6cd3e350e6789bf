"""From nothing to a multilingual model of one's own, by the commands of docs/models.md and README.md: a made model with the files, the
architecture and the tokenizer of paraphrase-multilingual-MiniLM is fetched from a stand-in for the Hub, checked and served."""
# ctest: integration
# ctest-cost: 5

import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import urllib.parse

import model
import process
from case import SluiceCase
from daemon import BINARY, SOURCE

sys.path[:0] = [os.path.join(SOURCE, "tests", "docs"), os.path.join(SOURCE, "tests", "golden")]
import charsmap  # noqa: E402
from blocks import only_block, put_in  # noqa: E402

REPOSITORY, COMMIT = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2", "c0ffee" + "0" * 34
NOT_NEEDED = ("pytorch_model.bin", "onnx/model.onnx", "sentencepiece.bpe.model")
SENTENCES = ("Guten Morgen", "おはよう", "доброе утро", "صباح الخير", "god morgon", "早上好", "good morning", "좋은 아침")
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]


def pieces():
    """A Unigram vocabulary with a token for each character and each word of the sentences but the last."""
    words = ["\u2581" + word for sentence in SENTENCES[:-1] for word in sentence.split()]
    letters = sorted(set("\u2581" + "".join(SENTENCES[:-1])) - {" "})
    return [*SPECIALS, *dict.fromkeys(words), *letters, "<mask>"]


def tokenizer(vocabulary):
    special = {name: {"id": name, "ids": [vocabulary.index(name)], "tokens": [name]} for name in ("<s>", "</s>")}
    first, text, last = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": vocabulary.index(name), "content": name, "single_word": False, "lstrip": name == "<mask>", "rstrip": False,
                              "normalized": False, "special": True} for name in (*SPECIALS, "<mask>")],
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap.build(charsmap.nmt_nfkc())},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True}]},
            "post_processor": {"type": "TemplateProcessing", "single": [first, text, last],
                               "pair": [first, text, last, last, {"Sequence": {"id": "B", "type_id": 0}}, last], "special_tokens": special},
            "decoder": {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True},
            "model": {"type": "Unigram", "unk_id": 3, "vocab": [[piece, -float(len(vocabulary) - at) / 10] for at, piece in enumerate(vocabulary)]}}


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers the requests of `hf download` and `curl` to the Hub, for one repository in the folder `server.folder`."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, whole):
        path = urllib.parse.unquote(self.path.partition("?")[0])
        content, kind = None, "application/json"
        if path == f"/api/models/{REPOSITORY}/revision/main":
            content = json.dumps({"id": REPOSITORY, "sha": COMMIT}).encode()
        elif path == f"/api/models/{REPOSITORY}/tree/{COMMIT}":
            content = json.dumps([{"type": "file", "path": name, "size": os.path.getsize(os.path.join(self.server.folder, name)),
                                   "oid": hashlib.sha1(name.encode()).hexdigest()} for name in self.server.names]).encode()
        found = re.fullmatch(rf"/{REPOSITORY}/resolve/(?:main|{COMMIT})/(.*)", path)
        if found and found[1] in self.server.names:
            kind = "application/octet-stream"
            with open(os.path.join(self.server.folder, found[1]), "rb") as file:
                content = file.read()
            self.server.fetched.append(found[1])
        self.send_response(404 if content is None else 200)
        content = content or b""
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if whole:
            self.wfile.write(content)

    def log_message(self, *arguments):
        pass


class OwnModel(SluiceCase):
    def setUp(self):
        super().setUp()
        folder = self.path("hub")
        vocabulary = pieces()
        model.write_model(folder, words=model.SPECIALS + [str(at) for at in range(len(vocabulary) - len(model.SPECIALS))], normalize=False)
        os.remove(os.path.join(folder, "vocab.txt"))
        self.put(folder, "tokenizer.json", tokenizer(vocabulary))
        self.put(folder, "tokenizer_config.json", {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>",
            "pad_token": "<pad>", "cls_token": "<s>", "mask_token": "<mask>", "model_max_length": 128})
        os.mkdir(os.path.join(folder, "onnx"))
        for name in NOT_NEEDED:
            with open(os.path.join(folder, name), "wb") as file:
                file.write(b"large")
        self.hub = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
        self.hub.folder, self.hub.fetched = folder, []
        self.hub.names = [os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names]
        threading.Thread(target=self.hub.serve_forever, daemon=True).start()
        self.addCleanup(self.hub.server_close)
        self.addCleanup(self.hub.shutdown)
        self.address = f"http://127.0.0.1:{self.hub.server_address[1]}"

    def put(self, folder, name, content):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False)

    def block(self, page, mark):
        with open(os.path.join(SOURCE, page), encoding="utf-8") as file:
            return only_block(file.read(), mark)

    def shell(self, code, **environment):
        environment = process.clean_environment({"HOME": self.directory, "HF_ENDPOINT": self.address, **environment})
        environment["PATH"] = f"{os.path.dirname(BINARY)}:{os.environ['SLUICE_VENV']}/bin:{environment['PATH']}"
        done = subprocess.run(["bash", "-ec", code], cwd=self.directory, env=environment, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, f"{code}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_hf_fetches_what_is_needed(self):
        """The README has the command as docs/models.md has it."""
        code = self.block("docs/models.md", "hf download")
        self.assertIn(code.rstrip("\n"), self.block("README.md", "hf download"))
        self.shell(code)
        self.assertEqual(set(self.hub.names) - set(self.hub.fetched), set(NOT_NEEDED))
        self.check_served()

    def test_curl_fetches_what_is_needed(self):
        code = self.block("docs/models.md", "curl -fL")
        self.shell(f"set +e\n{put_in(code, 'https://huggingface.co', self.address)}:")  # this model lacks one of the last three
        self.assertFalse(set(self.hub.fetched) & set(NOT_NEEDED))
        self.check_served()

    def check_served(self):
        """`sluice model` opens it, and a request in several languages gets vectors that differ."""
        check, serve, submit = self.block("docs/models.md", "sluice model multilingual  ").splitlines()
        told = json.loads(self.shell(check))
        self.assertEqual((told["family"], told["tokenizer"], told["pooling"], told["dims"]), ("bert", "Unigram", "mean", 64))
        server = self.start_redis()
        flags = re.search(r"--model (\S+) --queue (\S+) &", serve)
        self.queue = flags[2]
        self.start_daemon(server, model=self.path(flags[1]))
        replies = [json.loads(line) for line in self.shell(submit, SLUICE_REDIS=server.socket).splitlines()]
        self.assertEqual([reply["status"] for reply in replies], ["done", "done"])
        self.assertNotEqual(replies[0]["embedding"], replies[1]["embedding"])
        self.check_tokens(self.path(flags[1]))

    def check_tokens(self, folder):
        """In each script, only characters that the vocabulary lacks become unknown tokens."""
        lines = self.run_sluice("tokenize", "--model", folder, input="\n".join(SENTENCES).encode()).stdout.splitlines()
        self.assertEqual([3 in json.loads(line) for line in lines], [False] * 7 + [True])
