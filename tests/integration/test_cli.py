"""The command line without Redis, as a person or a script uses it: arguments, configuration, tokenize, embed; output,
exit codes of sysexits.h, errors that say what to do."""

import json
import os
import pty
import re
import signal
import struct
import subprocess

import process
from case import SluiceCase
from corpus import AWKWARD, texts
from daemon import BINARY, SOURCE
from vectors import read_npy

USAGE, DATAERR, NOINPUT, IOERR, CONFIG = 64, 65, 66, 74, 78
COMMANDS = ["serve", "submit", "get", "embed", "similar", "tokenize", "config", "version"]


class CommandLine(SluiceCase):
    def ok(self, *arguments, **options):
        """Returns the stdout of a command that must succeed and write nothing else."""
        result = self.run_sluice(*arguments, **options)
        self.assertEqual((result.returncode, result.stderr), (0, b""), arguments)
        return result.stdout.decode()

    def fails(self, code, *arguments, says, **options):
        """Returns the stderr of a command that must end with this exit code and print nothing on stdout."""
        result = self.run_sluice(*arguments, **options)
        text = result.stderr.decode("utf-8", "replace")
        self.assertEqual((result.returncode, result.stdout), (code, b""), f"{arguments}: {text}")
        self.assertIn(says, text)
        return text


class Arguments(CommandLine):
    def test_version(self):
        with open(os.path.join(SOURCE, "CMakeLists.txt"), encoding="utf-8") as file:
            release = re.search(r"project\(sluice VERSION ([0-9.]+)", file.read())[1]
        version = self.ok("version")
        self.assertEqual(self.ok("--version"), version)
        date, commit = re.fullmatch(rf"sluice {release}\+git(\d{{12}})\.([0-9a-f]{{8}})\n", version).groups()

        def version_of(commit):
            stamp = subprocess.run(["git", "-C", SOURCE, "log", "-1", "--format=%cd.%H", "--date=format-local:%Y%m%d%H%M", commit], check=True,
                                   capture_output=True, text=True, env={**os.environ, "TZ": "UTC"}).stdout
            return stamp[:len("YYYYmmddHHMM.") + 8]

        self.assertEqual(version_of(commit), f"{date}.{commit}")
        archive = os.path.join(self.directory, "archive")  # made by `git archive`, outside any checkout
        os.mkdir(archive)
        packed = subprocess.run(["git", "-C", SOURCE, "archive", "HEAD", "cmake", ".gitattributes"], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", archive], input=packed, check=True)
        subprocess.run(["cmake", "-D", f"SOURCE={archive}", "-D", f"PROJECT={release}", "-D", f"OUTPUT={archive}/version.c",
                        "-P", f"{archive}/cmake/Version.cmake"], check=True)
        with open(os.path.join(archive, "version.c"), encoding="utf-8") as file:
            self.assertIn(f'"{release}+git{version_of("HEAD")}"', file.read())

    def test_help(self):
        listing = self.ok("--help")
        self.assertEqual(self.fails(USAGE, says="usage: "), listing)
        for name in COMMANDS:
            self.assertIn(f"\n  {name} ", listing)
            text = self.ok(name, "--help")
            self.assertIn(f"usage: sluice {name}", text)
            self.assertEqual(self.ok("help", name), text)
        self.assertNotIn("--window-ms", self.ok("embed", "--help"))

    def test_help_shows_every_setting_of_serve(self):
        """Each key of config/sluice.json is a flag, except the password itself and the list of queues."""
        with open(os.path.join(SOURCE, "config", "sluice.json"), encoding="utf-8") as file:
            keys = re.findall(r'^ {4}"([a-z0-9_]+)":', file.read(), re.M)
        self.assertGreater(len(keys), 20)
        text = self.ok("serve", "--help")
        for key in keys:
            if key not in ("redis_password", "queues"):
                self.assertIn("--" + key.replace("_", "-"), text)
        self.assertNotRegex(text, r"--redis-password\b(?!-file)")
        for row in ("--precision auto|f32|bf16|f16|int8|int8_all", "--redis URL", "--redis-password-file FILE", "--no-truncate"):
            self.assertIn(row, text)

    def test_usage_errors(self):
        for says, *arguments in (
                ('unknown command "serv"; did you mean serve?', "serv"),
                ('unknown command "bennch"; did you mean bench?', "bennch"),
                ('unknown command "foo"; sluice --help lists them', "foo"),
                ("unknown option --modle; the nearest one is --model", "embed", "--modle", "x"),
                ("the nearest one is --window-ms", "serve", "--windows-ms=3"),
                ("--nonsense", "embed", "--nonsense"),
                ("embed does not take --window-ms", "embed", "--window-ms", "3"),
                ('--window-ms must be a whole number from 0 to 60000, not "x"', "serve", "--window-ms", "x"),
                ("--precision must be one of auto, f32, bf16, f16, int8, int8_all", "embed", "--precision=f64"),
                ("--window-ms needs a value", "serve", "--window-ms"),
                ("takes no value", "serve", "--no-truncate=1"),
                ("queue", "serve", "--queue", "Upper Case"),
                ("from 1 to 4096", "serve", "--max-batch-rows", "4097"),
                ("from 1 to 15728640", "serve", "--max-text-bytes", "15728641"),
                ('serve takes no arguments, so what does "now" mean', "serve", "now"),
                ("too", "version", "too", "much"),
                ("put -- before a text", "submit", "-5 degrees"),
                ("--id", "submit", "--id", "a\tb", "text"),
                ("--id", "submit", "--id", "1700000000000-0", "text"),
                ("SLUICE_REDIS_PASSWORD", "serve", "--redis-password=hunter2")):
            with self.subTest(arguments=arguments):
                self.assertNotIn("hunter2", self.fails(USAGE, *arguments, says=says))


class Config(CommandLine):
    def config(self, *arguments, **options):
        rows = [re.fullmatch(r"(\w+) +(.*?) +# (.*)", line) for line in self.ok("config", *arguments, **options).splitlines()]
        return {row[1]: (row[2], row[3]) for row in rows}

    def test_sources_in_order(self):
        file = self.write("c.json", '{ // one\n"window_ms": 3, /* two */ "lease_ms": 600, "queue": "from-file"}')
        values = self.config("--config", file, "--window-ms", "1", "--no-truncate",
                             environment={"SLUICE_WINDOW_MS": "2", "SLUICE_LEASE_MS": "500"})
        self.assertEqual(values["window_ms"], ("1", "flag --window-ms"))
        self.assertEqual(values["truncate"][0], "false")
        self.assertEqual(values["lease_ms"], ("500", "environment SLUICE_LEASE_MS"))
        self.assertEqual(values["queue"], ('"from-file"', f"file {file}"))
        self.assertEqual(values["max_batch_ms"][1], "default")

    def test_what_the_backend_decides(self):
        for backend, rows, tokens in (("cpu", "; 256 on cpu", "; 4096 on cpu"), ("none-such", "", "")):
            values = self.config("--backend", backend)
            self.assertEqual(values["max_batch_rows"], ('"auto"', "default" + rows))
            self.assertEqual(values["max_batch_tokens"], ('"auto"', "default" + tokens))
        self.assertEqual(self.config("--backend", "cpu", "--max-batch-rows", "9")["max_batch_rows"], ("9", "flag --max-batch-rows"))

    def test_config_file_from_the_environment(self):
        file = self.write("c.json", '{"queue": "q"}')
        self.assertEqual(self.config(environment={"SLUICE_CONFIG": file})["queue"], ('"q"', f"file {file}"))
        self.assertEqual(self.config(environment={"SLUICE_CONFIG": ""})["queue"][1], "default")

    def test_shipped_file_changes_nothing(self):
        before, after = self.config(), self.config("--config", os.path.join(SOURCE, "config", "sluice.json"))
        self.assertEqual({key: value[0] for key, value in before.items()}, {key: value[0] for key, value in after.items()})

    def test_broken_files(self):
        for content, says in (('{"que": "q"}', 'unknown key "que"; the nearest known one is "queue"'),
                              ('{"window_ms": 7', "c.json"),
                              ('{ // one\n"window_ms" 7}', "c.json line 2, byte 13: not valid JSON"),
                              ('{"window_ms": "x"}', '"window_ms" must be a whole number from 0 to 60000')):
            self.assertIn("c.json", self.fails(CONFIG, "config", "--config", self.write("c.json", content), says=says))
        self.fails(NOINPUT, "config", "--config", self.path("none.json"), says="none.json")
        self.fails(CONFIG, "config", environment={"SLUICE_WINDOW_MS": "-1"}, says="SLUICE_WINDOW_MS")

    def test_a_mistyped_variable(self):
        """Only one that is nearly a setting is reported: Kubernetes sets SLUICE_PORT and its like for a service of this name."""
        result = self.run_sluice("config", environment={"SLUICE_PRECISON": "f32", "SLUICE_PORT": "x", "SLUICE_SERVICE_HOST": "x"})
        self.assertEqual((result.returncode, result.stderr.decode()),
                         (0, "sluice config: SLUICE_PRECISON is no setting and is ignored; did you mean SLUICE_PRECISION?\n"))

    def test_files_that_are_not_there(self):
        here = self.write("token", "x")
        values = self.config("--model", self.path("nowhere"), "--http", "127.0.0.1:9464", "--http-token-file", here, "--redis-password-file", here + "2")
        self.assertEqual(values["model"][1], "flag --model; cannot be read: No such file or directory")
        self.assertEqual(values["redis_password_file"][1], "flag --redis-password-file; cannot be read: No such file or directory")
        self.assertEqual((values["http_token_file"][1], values["tls_ca_file"][1]), ("flag --http-token-file", "default"))

    def test_secrets_are_not_shown(self):
        result = self.run_sluice("config", "--redis", "redis://u:hunter2@h:1/2", environment={"SLUICE_REDIS_PASSWORD": "hunter3"})
        self.assertEqual(result.returncode, 0)
        self.assertNotIn(b"hunter", result.stdout + result.stderr)
        self.assertIn(b"redis://u:***@h:1/2", result.stdout)
        self.assertIn(b"warning: the password in --redis could be seen", result.stderr)


class Tokenize(CommandLine):
    def tokenize(self, text, *arguments):
        return [json.loads(line) for line in self.ok("tokenize", "--model", self.make_model(), *arguments, input=text).splitlines()]

    def test_one_array_per_line(self):
        lines = self.tokenize("hello world\n\nunaffable wording 世界".encode())
        with open(os.path.join(self.make_model(), "vocab.txt"), encoding="utf-8") as file:
            words = file.read().split("\n")
        names = [[words[id] for id in line] for line in lines]
        self.assertEqual(names[:2], [["[CLS]", "hello", "world", "[SEP]"], ["[CLS]", "[SEP]"]])
        self.assertEqual((len(names), names[2][-3:]), (3, ["世", "界", "[SEP]"]))
        self.assertEqual(self.tokenize(b""), [])

    def test_a_file_cut_at_the_limit(self):
        file = self.write("texts", "hello " * 500 + "\nthe of\n")
        self.assertEqual([len(row) for row in self.tokenize(b"", "--input", file)], [64, 4])
        self.assertEqual([len(row) for row in self.tokenize(b"", "--input", file, "--max-tokens", "5")], [5, 4])

    def test_a_line_of_megabytes(self):
        rows = self.tokenize(b"x" * (5 << 20) + b"\n" + "世界 ".encode() * (1 << 20) + b"\nthe")
        self.assertEqual([len(row) for row in rows], [3, 64, 3])

    def test_errors(self):
        model, file = self.make_model(), self.write("texts", b"fine\nbro\xffken\n")
        result = self.run_sluice("tokenize", "--model", model, "--input", file)
        self.assertEqual(result.returncode, DATAERR)
        self.assertIn(f"{file} line 2: not UTF-8 at byte 3", result.stderr.decode())
        self.fails(NOINPUT, "tokenize", "--model", self.path("none"), says="--model")
        self.fails(NOINPUT, "tokenize", "--model", model, "--input", self.path("missing"), says="missing")
        said = self.fails(NOINPUT, "tokenize", "--model", self.directory, says="neither modules.json nor config.json")
        self.assertIn(f"{model} may be the model", said)


class Embed(CommandLine):
    def embed(self, *arguments, **options):
        return self.ok("embed", "--model", self.make_model(), "--precision", "f32", *arguments, **options)

    def rows(self, *arguments, **options):
        """Returns the rows of the .npy file that these arguments make."""
        self.assertEqual(self.embed(*arguments, "--output", self.path("rows.npy"), **options), "")
        return read_npy(self.path("rows.npy"))

    def vectors(self, lines):
        return [struct.pack("<64f", *json.loads(line)) for line in lines.splitlines()]

    def test_npy_json_lines_and_stdout_in_input_order(self):
        """Lengths of lines vary widely, and some are empty, so batches are not in input order: the n-th line has the
        n-th vector, of length 1, equal to that of the line alone and the same in every format."""
        words = "the of and to in is was it for on with hello world queue batch vector".split()
        lines = AWKWARD + [" ".join(words[(i + j) % len(words)] for j in range(i * 7919 % 60)) for i in range(500)]
        text = "".join(line + "\n" for line in lines)
        file = self.write("texts", text)
        rows = self.rows("--input", file)
        self.assertEqual(len(rows), len(lines))
        for row in rows:
            self.assertAlmostEqual(sum(value * value for value in struct.unpack("<64f", row)), 1.0, places=5)
        for index in (0, 1, 17, 250, 499):
            self.assertEqual(self.vectors(self.embed(input=(lines[index] + "\n").encode())), [rows[index]], f"line {index + 1}")
        self.embed("--input", file, "--output", self.path("v.jsonl"))
        with open(self.path("v.jsonl"), encoding="ascii") as written:
            printed = written.read()
        self.assertEqual(self.vectors(printed), rows)
        self.assertEqual(self.embed("--input", "-", "--output", "-", input=text.encode()[:-1]), printed)  # the last line has no newline

    def test_batches_threads_and_order_change_no_bit(self):
        batch = texts(300, seed=2)
        text = "".join(line + "\n" for line in batch).encode()
        plain = self.rows(input=text)
        for flags in (["--max-batch-rows", "1"], ["--max-batch-tokens", "65", "--threads", "3"], ["--threads", "1", "--max-batch-rows", "3"],
                      ["--device", "0,0,0", "--threads", "1"]):
            self.assertEqual(self.rows(*flags, input=text), plain, flags)
        self.assertEqual(self.rows(input="".join(line + "\n" for line in reversed(batch)).encode())[::-1], plain)

    def test_more_lines_than_are_read_ahead(self):
        rows = self.rows(input=b"the\nqueue of\n" * 6000)
        self.assertEqual(rows, rows[:2] * 6000)
        self.assertEqual(len(rows), 12000)

    def test_empty_lines_and_none(self):
        first, second, third = self.embed(input=b"\nthe\n\n").splitlines()
        self.assertEqual(first, third)
        self.assertNotEqual(first, second)
        self.assertEqual(self.embed(input=b""), "")
        self.assertEqual(self.rows(input=b""), [])

    def test_errors(self):
        source, model, output = self.write("texts", "hello\n"), self.make_model(), self.path("v.npy")
        bad = self.write("bad", b"a\nb\n\xc3\n")
        for code, says, *arguments in ((NOINPUT, "absent", "--model", self.path("absent"), "--input", source, "--output", output),
                                       (NOINPUT, "missing", "--model", model, "--input", self.path("missing"), "--output", output),
                                       (DATAERR, f"{bad} line 3: not UTF-8", "--model", model, "--input", bad, "--output", output),
                                       (DATAERR, "must end in .npy or .jsonl", "--model", model, "--input", source, "--output",
                                        self.path("v.csv")),
                                       (NOINPUT, "v.npy", "--model", model, "--input", source, "--output", self.path("no", "v.npy"))):
            self.assertLessEqual(self.fails(code, "embed", *arguments, says=says).count("absent"), 1)
        self.assertFalse(os.path.exists(self.path("v.csv")))

    def test_broken_model(self):
        """For each broken file of the model there is an error that names the file, never a crash."""
        source = self.write("texts", "hello\n")
        for number, (name, content) in enumerate((
                ("config.json", b"{"), ("config.json", b'{"model_type": "gpt2"}'), ("model.safetensors", b"short"),
                ("model.safetensors", struct.pack("<Q", 2**60) + b"{}"), ("tokenizer.json", b"[]"), ("1_Pooling/config.json", b"null"),
                ("modules.json", b"[1]"))):
            model = self.make_model(f"broken-{number}")
            with open(os.path.join(model, name), "wb") as file:
                file.write(content)
            result = self.run_sluice("embed", "--model", model, "--input", source, "--output", self.path("v.npy"))
            self.assertGreaterEqual(result.returncode, 64, (name, content, result))
            self.assertIn(os.path.basename(name).encode(), result.stderr)

    def test_full_disk_is_an_error(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([BINARY, "embed", "--model", self.make_model()], input=b"the\n", stdout=full,
                                    stderr=subprocess.PIPE, env=process.clean_environment(), check=False)
        self.assertEqual(result.returncode, IOERR)
        self.assertIn(b"cannot write", result.stderr)

    def test_closed_descriptors(self):
        """A closed standard output is an error, and so is a closed standard input; no file gets the number of a closed
        descriptor."""
        def run(closed, *arguments):
            return subprocess.run(["/bin/sh", "-c", f'exec "$0" "$@" {closed}', BINARY, *arguments], stdin=subprocess.DEVNULL,
                                  capture_output=True, env=process.clean_environment(), timeout=60, check=False)
        result = run(">&-", "version")
        self.assertEqual(result.returncode, IOERR)
        self.assertIn(b"cannot write to standard output: Bad file descriptor", result.stderr)
        self.assertEqual(run(">&- 2>&-", "version").returncode, IOERR)
        result = run("<&-", "embed", "--model", self.make_model(), "--input", "-", "--output", self.path("v.npy"))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(b"Bad file descriptor", result.stderr)
        self.assertEqual(run("<&- 2>&-", "version").stdout, run("", "version").stdout)
        source = self.write("texts", "".join(text + "\n" for text in texts(50)))
        for closed, output in (("", self.path("a.jsonl")), ("<&- >&- 2>&-", self.path("b.jsonl"))):
            run(closed, "embed", "--model", self.make_model(), "--precision", "f32", "--progress", "json", source, "--output", output)
        with open(self.path("a.jsonl"), "rb") as wanted, open(self.path("b.jsonl"), "rb") as got:
            self.assertEqual(got.read(), wanted.read())

    def test_into_a_closed_pipe(self):
        """`sluice embed … | head -1` ends without a message about the pipe and without a crash."""
        source = self.write("texts", "".join(text + "\n" for text in texts(3000, seed=3)))
        child = process.start([BINARY, "embed", "--model", self.make_model(), "--input", source, "--output", "-"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=process.clean_environment())
        self.assertTrue(child.stdout.readline())
        child.stdout.close()
        self.assertIn(child.wait(60), (0, -signal.SIGPIPE, IOERR), child.stderr.read())
        child.stderr.close()

    def test_progress_on_a_terminal_only(self):
        file = self.write("texts", "".join(text + "\n" for text in texts(2000)))
        self.rows("--input", file)  # prints nothing
        leader, follower = pty.openpty()
        subprocess.run([BINARY, "embed", "--model", self.make_model(), "--input", file, "--output", self.path("w.npy")],
                       stderr=follower, env=process.clean_environment(), check=True)
        os.close(follower)
        shown = b""
        try:
            while True:  # a read returns the output so far
                shown += os.read(leader, 65536)
        except OSError:  # EIO: end of output
            os.close(leader)
        self.assertRegex(shown.decode(), r"\[#{30}\] 100 %  2000 texts, \d+ texts/s")
