"""The parts of the GPU check, as far as they go without a GPU: on tiny models, the CPU backend and a reference in NumPy;
and that wrong results make them fail. The list of parts, packs and e2e.py are in test_run.py."""
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ["SLUICE_BUILD"])
GPU_CHECK = BUILD / "tests/gpu_check"
ON_HOST = BUILD / "tests/gpu_check_host"  # the CUDA engine over the host table and the SIMT shim
with_cuda_on_host = unittest.skipUnless(ON_HOST.exists(), "built without CUDA's headers, for which unit.kernels.headers fails")


class Case(unittest.TestCase):
    """A folder of its own, one for the models that the class shares, and ways to run the scripts; test_run.py uses it too."""

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.shared.cleanup)

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = pathlib.Path(self.folder.name)

    def run_check(self, part, *words, driver=(GPU_CHECK,)):
        return self.run_command([sys.executable, "-B", HERE / "check.py", part, "--driver", shlex.join(map(str, driver)),
                                 "--work", self.shared.name, "--json", self.out / f"{part}.json",
                                 "--backend", "cpu", "--reference", "numpy", *words])

    def run_command(self, command):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=500, check=False)
        self.text = done.stdout + done.stderr
        return done.returncode

    def content(self, part):
        return json.loads((self.out / f"{part}.json").read_text())

    def made_up(self, path, script):
        """Writes a program of one line of shell at out/path."""
        path = self.out / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


class OnTheHost(Case):
    def spoiler(self, spoil):
        """A driver that runs gpu_check and then spoils the vectors that it has written, a [rows, dim] array."""
        path = self.out / "spoiler.py"
        path.write_text(textwrap.dedent(f"""\
            import subprocess, sys
            import numpy as np
            done = subprocess.run([{str(GPU_CHECK)!r}, *sys.argv[1:]])
            if done.returncode != 0:
                sys.exit(done.returncode)
            vectors = np.fromfile(sys.argv[4], np.float32).reshape(-1, 64)
            {spoil}
            vectors.tofile(sys.argv[4])
            """))
        return sys.executable, path

    def spoilt(self, spoil, expected):
        self.assertEqual(self.run_check("numbers", "--shapes", "tiny", driver=self.spoiler(spoil)), 1, self.text)
        self.assertIn("WRONG", self.text)
        self.assertIn(expected, self.text)
        self.assertTrue(self.content("numbers")["failures"])

    def test_right_numbers_pass(self):
        self.assertEqual(self.run_check("numbers", "--shapes", "tiny,tiny-cls,tiny-overflow"), 0, self.text)
        content = self.content("numbers")
        self.assertEqual(content["failures"], [])
        titles = [entry["title"] for entry in content["numbers"] if entry["good"]]
        for wanted in ("tiny f32", "tiny-cls f32", "tiny-overflow f32 rows beyond f16", "tiny-overflow f32 rows beside them"):
            self.assertIn(wanted, titles)

    def test_one_wrong_vector_fails(self):
        self.spoilt("vectors[20, :8] *= -1", "alone: ")

    def test_vector_that_is_not_finite_fails(self):
        self.spoilt("vectors[3, 5] = np.nan", "tiny f32")

    def test_text_with_other_numbers_in_a_batch_fails(self):
        self.spoilt("vectors[-1] *= 1.001", "one text apart")

    def test_missing_vectors_fail(self):
        self.spoilt("vectors = vectors[:-1]", "floats for")

    def test_driver_that_dies_fails(self):
        self.assertEqual(self.run_check("numbers", "--shapes", "tiny", driver=("/bin/false",)), 1, self.text)
        self.assertIn("gpu_check ended with 1", self.text)

    def test_gpu_that_is_not_there_fails(self):
        """If no check could be made, the run has not passed."""
        driver = ("/bin/sh", "-c", "echo no GPU here >&2; exit 77")
        self.assertEqual(self.run_check("numbers", "--shapes", "tiny", "--backend", "cuda", driver=driver), 1, self.text)
        self.assertIn("not here: no GPU here", self.text)

    def test_forward_once(self):
        command = [sys.executable, "-B", HERE / "forward_once.py", "--driver", shlex.quote(str(GPU_CHECK)), "--work", self.shared.name,
                   "--backend", "cpu"]
        self.assertEqual(self.run_command(command), 0, self.text)
        self.assertEqual(self.text.count("worst cosine"), 6)

    def run_sanitizer(self, sanitizer, part, check):
        """Runs a part of run.py with made-up kernel tests and a made-up compute-sanitizer, which runs its command."""
        for name in "ab":
            self.made_up(f"build/tests/gpu_kernels_{name}", f"echo {name}")
        self.made_up("bin/compute-sanitizer", f"""tool=$2; while case $1 in --*) true ;; *) false ;; esac; do shift 2; done
            echo "========= COMPUTE-SANITIZER"; "$@" || exit; {sanitizer}""")
        self.made_up("build/tests/gpu_check", check)
        path = f"{self.out}/bin:{os.environ['PATH']}"
        return self.run_command(["env", f"PATH={path}", sys.executable, "-B", HERE / "run.py", part, "--built", self.out / "build",
                                 "--out", self.out / "out", "--seconds", 400])

    @with_cuda_on_host
    def test_sanitizer_passes_what_is_clean(self):
        self.assertEqual(self.run_sanitizer("exit 0", "racecheck", f'exec {ON_HOST} "$@"'), 0, self.text)
        self.assertEqual(self.text.count("forward_once: tiny"), 2, self.text)  # with graphs and without

    def test_sanitizer_reports_fail(self):
        spoil = 'echo "========= MEMCHECK SUMMARY: 1 error"; case "$*" in *gpu_kernels_b*) exit 9 ;; esac; exit 0'
        self.assertEqual(self.run_sanitizer(spoil, "memcheck", "exit 1"), 1, self.text)
        self.assertIn("MEMCHECK SUMMARY: 1 error", self.text)
        self.assertIn("FAILED, exit code 1: python; exit code 9: env", self.text)

    def run_cuda(self, part, shapes):
        return self.run_check(part, "--backend", "cuda", "--quick", "--no-peers", "--shapes", shapes, driver=(ON_HOST,))

    @with_cuda_on_host
    def test_cuda_numbers_on_the_host(self):
        self.assertEqual(self.run_cuda("numbers", "tiny"), 0, self.text)
        titles = [entry["title"] for entry in self.content("numbers")["numbers"]]
        for precision in ("f16", "bf16"):
            for graphs in ("graphs", "no graphs", "graphs beside none"):
                self.assertIn(f"tiny {precision} {graphs}", titles)
        self.assertIn("tiny f32 graphs", titles)

    @with_cuda_on_host
    def test_cuda_numbers_of_modernbert_on_the_host(self):
        self.assertEqual(self.run_cuda("numbers", "tiny-modernbert"), 0, self.text)
        titles = [entry["title"] for entry in self.content("numbers")["numbers"]]
        for precision in ("f16", "bf16", "f32"):
            self.assertIn(f"tiny-modernbert {precision} graphs", titles)

    @with_cuda_on_host
    def test_cuda_rows_beyond_f16_on_the_host(self):
        self.assertEqual(self.run_cuda("numbers", "tiny-overflow"), 0, self.text)

    @with_cuda_on_host
    def test_cuda_bench_on_the_host(self):
        self.assertEqual(self.run_cuda("bench", "tiny"), 0, self.text)
        titles = [entry["title"] for entry in self.content("bench")["speed"]]
        for wanted in ("tiny one text of 12 tokens, graphs", "tiny one text of 12 tokens, no graphs"):
            self.assertIn(wanted, titles)

    def test_bench_runs(self):
        self.assertEqual(self.run_check("bench", "--shapes", "tiny", "--quick", "--no-peers"), 0, self.text)
        titles = [entry["title"] for entry in self.content("bench")["speed"]]
        for wanted in ("tiny 64 tokens", "tiny mixed: batching off to on", "tiny one text of 12 tokens"):
            self.assertIn(wanted, titles)

    def test_unknown_words_are_refused(self):
        self.assertEqual(self.run_command([sys.executable, "-B", HERE / "run.py", "numbres", "--out", self.out]), 2)
        self.assertEqual(self.run_command([sys.executable, "-B", HERE / "run.py", "numbers"]), 2)
        self.assertEqual(self.run_check("numbers", "--shapes", "huge"), 2)
        self.assertEqual(self.run_command([GPU_CHECK, "vectors", "nowhere"]), 2)
        self.assertEqual(self.run_command([GPU_CHECK, "rates", "nowhere", "nothing", "--precision", "f8"]), 2)

    def test_broken_jobs_are_refused(self):
        sys.path.insert(0, str(HERE))
        import numpy as np

        import shapes
        model = shapes.write(self.out, "tiny")
        for numbers in ([], [1], [1, 5, 9], [0, 1, 1, 0, 1, 0], [1, 1, 9, 1, 1, 0, 1, 1], [1, 1, 9, -1], [1, 1, 9, 0, 7]):
            (self.out / "job").write_bytes(np.array(numbers, np.int32).tobytes())
            self.assertEqual(self.run_command([GPU_CHECK, "vectors", model, self.out / "job", self.out / "v"]), 2, numbers)


if __name__ == "__main__":
    unittest.main()
