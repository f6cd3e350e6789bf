"""The command line without Redis: arguments, configuration, tokenize, embed."""

import json
import os
import pty
import re
import struct
import subprocess
import unittest

import daemon
import process
from case import SluiceCase

EX_USAGE, EX_DATAERR, EX_NOINPUT, EX_UNAVAILABLE, EX_IOERR, EX_CONFIG = 64, 65, 66, 69, 74, 78
COMMANDS = ["serve", "submit", "get", "embed", "similar", "tokenize", "config", "version"]


def read_npy(path):
    """(rows, dim, bytes of the data); checks the header as numpy's own reader would."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    (length,) = struct.unpack("<H", data[8:10])
    assert (10 + length) % 64 == 0 and data[9 + length:10 + length] == b"\n"
    header = data[10:10 + length].decode("latin1")
    found = re.fullmatch(r"\{'descr': '<f4', 'fortran_order': False, 'shape': \((\d+), (\d+)\), \} *\n", header)
    assert found, header
    rows, dim = int(found[1]), int(found[2])
    assert len(data) - 10 - length == rows * dim * 4
    return rows, dim, data[10 + length:]


class Arguments(SluiceCase):
    def failed(self, code, *arguments, **options):
        """stderr of a command that must end with this exit code and print nothing on stdout."""
        result = self.run_sluice(*arguments, **options)
        text = result.stderr.decode()
        self.assertEqual(result.returncode, code, text)
        self.assertEqual(result.stdout, b"")
        return text

    def test_no_command_lists_them(self):
        text = self.failed(EX_USAGE)
        for name in COMMANDS:
            self.assertIn(f"\n  {name} ", text)

    def test_help_of_every_command(self):
        for name in COMMANDS:
            result = self.run_sluice(name, "--help")
            self.assertEqual((result.returncode, result.stderr), (0, b""), name)
            self.assertIn(f"usage: sluice {name}".encode(), result.stdout)
            self.assertEqual(self.run_sluice("help", name).stdout, result.stdout)

    def test_help_shows_the_rows(self):
        text = self.run_sluice("serve", "--help").stdout.decode()
        self.assertIn("--precision auto|f32|bf16|f16|int8", text)
        self.assertIn("--redis URL", text)
        self.assertNotIn("--redis-password TEXT", text)
        self.assertIn("--redis-password-file FILE", text)

    def test_version(self):
        self.assertRegex(self.run_sluice("version").stdout.decode(), r"^sluice \d+\.\d+\.\d+\n$")
        self.assertEqual(self.run_sluice("--version").stdout, self.run_sluice("version").stdout)

    def test_unknown_command_names_the_nearest(self):
        self.assertIn('unknown command "serv"; did you mean serve?', self.failed(EX_USAGE, "serv"))
        self.assertIn('unknown command "banch"; did you mean bench?', self.failed(EX_USAGE, "banch"))
        self.assertIn('unknown command "foo"; sluice --help lists them', self.failed(EX_USAGE, "foo"))

    def test_unknown_flag_names_the_nearest(self):
        self.assertIn("unknown option --modle; the nearest one is --model", self.failed(EX_USAGE, "embed", "--modle", "x"))
        self.assertIn("the nearest one is --window-ms", self.failed(EX_USAGE, "serve", "--windows-ms=3"))

    def test_flag_of_another_command(self):
        self.assertIn("embed does not take --window-ms", self.failed(EX_USAGE, "embed", "--window-ms", "3"))

    def test_wrong_value_names_the_flag(self):
        self.assertIn('--window-ms must be a whole number from 0 to 60000, not "x"', self.failed(EX_USAGE, "serve", "--window-ms", "x"))
        self.assertIn("--precision must be one of auto, f32, bf16, f16, int8", self.failed(EX_USAGE, "embed", "--precision=f64"))
        self.assertIn("--window-ms needs a value", self.failed(EX_USAGE, "serve", "--window-ms"))
        self.assertIn("takes no value", self.failed(EX_USAGE, "serve", "--no-truncate=1"))

    def test_operand_where_none_belongs(self):
        self.assertIn('serve takes no arguments, so what does "now" mean', self.failed(EX_USAGE, "serve", "now"))
        self.assertIn("put -- before a text", self.failed(EX_USAGE, "submit", "-5 degrees"))

    def test_password_has_no_flag(self):
        text = self.failed(EX_USAGE, "serve", "--redis-password=hunter2")
        self.assertNotIn("hunter2", text)
        self.assertIn("SLUICE_REDIS_PASSWORD", text)


class Config(SluiceCase):
    def config(self, *arguments, code=0, **options):
        result = self.run_sluice("config", *arguments, **options)
        self.assertEqual(result.returncode, code, result.stderr)
        rows = [re.fullmatch(r"(\w+) +(.*?) +# (.*)", line) for line in result.stdout.decode().splitlines()]
        return {row[1]: (row[2], row[3]) for row in rows}

    def test_sources_in_order(self):
        file = self.write("c.json", '{"window_ms": 3, // comment\n"lease_ms": 600, "queue": "from-file"}')
        values = self.config("--config", file, "--window-ms", "1",
                             environment={"SLUICE_WINDOW_MS": "2", "SLUICE_LEASE_MS": "500"})
        self.assertEqual(values["window_ms"], ("1", "flag --window-ms"))
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
        shipped = os.path.join(daemon.SOURCE, "config", "sluice.json")
        before, after = self.config(), self.config("--config", shipped)
        self.assertEqual({key: value[0] for key, value in before.items()}, {key: value[0] for key, value in after.items()})

    def test_unknown_key_and_wrong_value(self):
        for content, message in [('{"que": "q"}', 'unknown key "que"; the nearest known one is "queue"'),
                                 ('{"window_ms": "x"}', '"window_ms" must be a whole number from 0 to 60000')]:
            result = self.run_sluice("config", "--config", self.write("c.json", content))
            self.assertEqual(result.returncode, EX_CONFIG)
            self.assertIn(message, result.stderr.decode())
            self.assertIn("c.json", result.stderr.decode())

    def test_missing_file(self):
        result = self.run_sluice("config", "--config", self.path("none.json"))
        self.assertEqual(result.returncode, EX_NOINPUT)
        self.assertIn("none.json", result.stderr.decode())

    def test_secrets_are_not_shown(self):
        result = self.run_sluice("config", "--redis", "redis://u:hunter2@h:1/2", environment={"SLUICE_REDIS_PASSWORD": "hunter3"})
        self.assertEqual(result.returncode, 0)
        self.assertNotIn(b"hunter", result.stdout + result.stderr)
        self.assertIn(b"redis://u:***@h:1/2", result.stdout)
        self.assertIn(b"warning: the password in --redis could be seen", result.stderr)


class Tokenize(SluiceCase):
    def tokenize(self, text, *arguments):
        result = self.run_sluice("tokenize", "--model", self.make_model(), *arguments, input=text)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        return [json.loads(line) for line in result.stdout.splitlines()]

    def test_one_array_per_line(self):
        rows = self.tokenize("hello world\n\nthe red queue".encode())
        self.assertEqual(len(rows), 3)
        self.assertEqual(len(rows[0]), 4)
        self.assertEqual(len(rows[1]), 2)
        self.assertEqual(rows[0][0], rows[1][0])
        self.assertEqual(rows[0][-1], rows[2][-1])

    def test_cut_at_the_limit(self):
        (row,) = self.tokenize(b"the " * 1000)
        self.assertEqual(len(row), 64)
        (row,) = self.tokenize(b"the " * 1000, "--max-tokens", "5")
        self.assertEqual(len(row), 5)

    def test_a_line_of_megabytes(self):
        rows = self.tokenize(b"x" * (5 << 20) + b"\n" + "世界 ".encode() * (1 << 20) + b"\nthe")
        self.assertEqual([len(row) for row in rows], [3, 64, 3])

    def test_no_lines_no_arrays(self):
        self.assertEqual(self.tokenize(b""), [])

    def test_input_file(self):
        file = self.write("texts", "the\nthe of\n")
        rows = self.tokenize(b"", "--input", file)
        self.assertEqual([len(row) for row in rows], [3, 4])

    def test_broken_utf8_is_no_text(self):
        file = self.write("texts", b"fine\nbro\xffken\n")
        result = self.run_sluice("tokenize", "--model", self.make_model(), "--input", file)
        self.assertEqual(result.returncode, EX_DATAERR)
        self.assertIn(f"{file} line 2: not UTF-8 at byte 3", result.stderr.decode())

    def test_missing_model_and_input(self):
        result = self.run_sluice("tokenize", "--model", self.path("none"))
        self.assertEqual(result.returncode, EX_NOINPUT)
        self.assertIn("--model", result.stderr.decode())
        result = self.run_sluice("tokenize", "--model", self.make_model(), "--input", self.path("none"))
        self.assertEqual(result.returncode, EX_NOINPUT)


class Embed(SluiceCase):
    def embed(self, *arguments, text=None, code=0):
        result = self.run_sluice("embed", "--model", self.make_model(), "--precision", "f32", *arguments, input=text)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def texts(self, count):
        """Lines of very different lengths, some empty, so that batches are not in input order."""
        words = "the of and to in is was it for on with hello world queue batch vector".split()
        return "".join(" ".join(words[(i + j) % len(words)] for j in range(i * 7919 % 60)) + "\n" for i in range(count))

    def test_npy_is_in_input_order(self):
        text = self.texts(500)
        file, output = self.write("texts", text), self.path("v.npy")
        self.embed("--input", file, "--output", output)
        rows, dim, data = read_npy(output)
        self.assertEqual((rows, dim), (500, 64))
        lines = text.splitlines()
        for index in (0, 1, 17, 250, 499):
            alone = self.embed(text=(lines[index] + "\n").encode()).stdout
            vector = struct.pack(f"<{dim}f", *json.loads(alone))
            self.assertEqual(data[index * dim * 4:(index + 1) * dim * 4], vector, f"line {index + 1}")

    def test_json_lines_are_the_same_floats(self):
        text = self.texts(40)
        file = self.write("texts", text)
        self.embed("--input", file, "--output", self.path("v.npy"))
        self.embed("--input", file, "--output", self.path("v.jsonl"))
        rows, dim, data = read_npy(self.path("v.npy"))
        with open(self.path("v.jsonl"), encoding="ascii") as lines:
            written = lines.read()
        self.assertEqual(b"".join(struct.pack(f"<{dim}f", *json.loads(line)) for line in written.splitlines()), data)
        self.assertEqual(self.embed(text=text.encode()).stdout.decode(), written)

    def test_threads_and_batch_sizes_change_no_bit(self):
        text = self.texts(300).encode()
        plain = self.embed(text=text).stdout
        self.assertEqual(self.embed("--threads", "1", "--max-batch-rows", "3", text=text).stdout, plain)
        self.assertEqual(self.embed("--threads", "3", "--max-batch-tokens", "65", text=text).stdout, plain)
        self.assertEqual(self.embed("--device", "0,0,0", "--threads", "1", text=text).stdout, plain)

    def test_several_windows(self):
        """More lines than are read ahead at once."""
        result = self.embed("--output", self.path("v.npy"), text=b"the\nqueue of\n" * 6000)
        self.assertEqual(result.stdout, b"")
        rows, dim, data = read_npy(self.path("v.npy"))
        self.assertEqual(rows, 12000)
        self.assertEqual(data, data[:2 * dim * 4] * 6000)

    def test_empty_line_is_a_row(self):
        lines = self.embed(text=b"\nthe\n\n").stdout.splitlines()
        self.assertEqual(len(lines), 3)
        self.assertEqual(lines[0], lines[2])
        self.assertNotEqual(lines[0], lines[1])

    def test_no_lines(self):
        self.assertEqual(self.embed(text=b"").stdout, b"")
        self.embed("--output", self.path("v.npy"), text=b"")
        self.assertEqual(read_npy(self.path("v.npy"))[:2], (0, 64))

    def test_broken_utf8_names_the_line(self):
        file = self.write("texts", b"a\nb\n\xc3\n")
        result = self.embed("--input", file, "--output", self.path("v.npy"), code=EX_DATAERR)
        self.assertIn(f"{file} line 3: not UTF-8", result.stderr.decode())

    def test_output_must_have_a_known_ending(self):
        result = self.embed("--output", self.path("v.csv"), text=b"a\n", code=EX_DATAERR)
        self.assertIn("must end in .npy or .jsonl", result.stderr.decode())
        self.assertFalse(os.path.exists(self.path("v.csv")))

    def test_full_disk_is_an_error(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([daemon.BINARY, "embed", "--model", self.make_model()], input=b"the\n", stdout=full,
                                    stderr=subprocess.PIPE, env=process.clean_environment(), check=False)
        self.assertEqual(result.returncode, EX_IOERR)
        self.assertIn(b"cannot write", result.stderr)

    def test_progress_on_a_terminal_only(self):
        file = self.write("texts", self.texts(2000))
        plain = self.embed("--input", file, "--output", self.path("v.npy"))
        self.assertEqual(plain.stderr, b"")
        leader, follower = pty.openpty()
        subprocess.run([daemon.BINARY, "embed", "--model", self.make_model(), "--input", file, "--output", self.path("w.npy")],
                       stderr=follower, env=process.clean_environment(), check=True)
        os.close(follower)
        shown = os.read(leader, 65536).decode()
        os.close(leader)
        self.assertRegex(shown, r"\[#{30}\] 100 %  2000 texts, \d+ texts/s")


if __name__ == "__main__":
    unittest.main()
