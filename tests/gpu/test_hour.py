"""The three commands of hour.sh as far as they go without a GPU, packs that lack something, and what e2e.py reports about the machine."""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

from test_check import BUILD, GPU_CHECK, HERE, Case


class OnTheHost(Case):
    def run_hour(self, letter, *words, kernels="echo cudaErrorNoDevice; exit 1", check=GPU_CHECK):
        """Runs hour.sh --no-gpu with a made-up kernel test; unpacks its results into results/."""
        for program, script in (("gpu_kernels_a", kernels), ("gpu_attention", "echo cudaErrorNoDevice; exit 1"),
                                ("gpu_check", f'exec {check} "$@"')):
            self.made_up(f"build/tests/{program}", script)
        self.made_up("build/sluice", f'exec {BUILD}/sluice "$@"')
        (self.out / "hour").mkdir()
        code = self.run_command([HERE / "hour.sh", letter, "--no-gpu", "--built", self.out / "build", "--out", self.out / "hour",
                                 "--work", self.out / "work", "--python", sys.executable, *words])
        self.assertEqual([path.name for path in (self.out / "hour").iterdir()], [f"results-{letter}.tar.gz"], self.text)
        (self.out / "results").mkdir()
        names = subprocess.check_output(["tar", "-C", self.out / "results", "-xvzf", self.out / f"hour/results-{letter}.tar.gz"])
        self.assertEqual(names.split()[0], b"summary.txt")
        self.summary = (self.out / "results/summary.txt").read_text()
        return code

    def verdict(self, part):
        return next(line.split(maxsplit=1)[1] for line in self.summary.splitlines() if line.split()[:1] == [part])

    def test_hour_a(self):
        self.assertEqual(self.run_hour("a"), 0, self.text)
        for part in ("quick", "kernels", "attention", "numbers-rotary", "numbers", "bench"):
            self.assertRegex(self.verdict(part), "^passed")
        self.assertIn("tiny-overflow f32 rows beyond f16", self.summary)
        self.assertIn("tiny one text of 12 tokens", self.summary)

    def test_hour_b(self):
        self.assertEqual(self.run_hour("b"), 0, self.text)
        self.assertEqual(self.summary.count(" passed after "), 7, self.summary)

    def test_hour_c(self):
        self.assertEqual(self.run_hour("c"), 0, self.text)
        for part in ("e2e", "memcheck", "racecheck"):
            self.assertRegex(self.verdict(part), "^passed")
        self.out = self.out / "results/e2e"
        content = self.content("e2e")
        self.assertEqual([entry["good"] for entry in content["numbers"]], [True] * 4)
        self.assertEqual(len(content["speed"]), 4)
        self.assertTrue(all(entry["limit"] for entry in content["speed"]))

    def test_hour_says_what_helps(self):
        """Graphs fail, and a kernel runs only when each launch is waited for; the rest is done all the same."""
        kernels = '[ "$CUDA_LAUNCH_BLOCKING" = 1 ] && echo cudaErrorNoDevice || echo why not; exit 1'
        self.made_up("graphs", f"""case "$*" in *--no-graphs*) exec {GPU_CHECK} "$@" ;; esac; echo capture failed >&2; exit 1""")
        self.assertEqual(self.run_hour("a", check=self.out / "graphs", kernels=kernels), 1, self.text)
        for part in ("quick", "numbers", "bench"):
            self.assertRegex(self.verdict(part), "^FAILED, exit code 1 after .* s; --no-graphs HELPED$")
        self.assertRegex(self.verdict("kernels"), "^FAILED, exit code 1 after .* s; CUDA_LAUNCH_BLOCKING=1 HELPED$")
        self.assertRegex(self.verdict("attention"), "^passed")
        self.assertIn("capture failed", self.summary)
        self.assertIn("why not", self.summary)

    def test_hour_ends_in_time(self):
        """A kernel test that hangs is cut short, with all processes that it has started."""
        self.made_up("hang", f"echo $$ >{self.out}/pid; exec sleep 300")
        begin = time.monotonic()
        self.assertEqual(self.run_hour("a", "--limit", "20", kernels=f"trap '' TERM; {self.out}/hang"), 1, self.text)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertRegex(self.verdict("kernels"), "^FAILED, cut short")
        process = pathlib.Path("/proc", (self.out / "pid").read_text().strip())
        while process.exists() and time.monotonic() - begin < 60:  # the process that adopted it has not reaped it yet
            time.sleep(0.1)
        self.assertFalse(process.exists())

    def test_pack_says_what_it_lacks(self):
        """The script names another glibc, or a library that is neither in the pack nor on the machine, before anything runs."""
        shutil.copytree(HERE, self.out / "tree/tests/gpu")
        pack = self.out / "tree/pack"
        (pack / "tests").mkdir(parents=True)
        (pack / "sluice").write_bytes(pathlib.Path("/bin/true").read_bytes().replace(b"libc.so.6", b"libq.so.6"))
        (pack / "sluice").chmod(0o755)
        (pack / "glibc").write_text("99.1")
        command = [self.out / "tree/tests/gpu/run.sh", "kernels", "--work", self.out / "work", "--python", sys.executable]
        self.assertEqual(self.run_command(command), 1)
        self.assertIn("need glibc 99.1 or newer, and this machine has ", self.text)
        (pack / "glibc").write_text("2.17")
        self.assertEqual(self.run_command(command), 1)
        self.assertIn("libq.so.6 => not found", self.text)

    def test_busy_share_and_what_limits(self):
        self.made_up("bin/nvidia-smi", "while :; do echo 40; echo '[N/A]'; echo 60; sleep 0.01; done")
        os.environ["PATH"] = f"{self.out}/bin:{os.environ['PATH']}"
        sys.path.insert(0, str(HERE))
        import e2e
        gpu = e2e.Gpu(argparse.Namespace(backend="cuda", device=0))
        try:
            e2e.wait_until(lambda: len(gpu.samples) > 10, "samples of nvidia-smi")
        finally:
            gpu.stop()
        self.assertAlmostEqual(gpu.busy(0, float("inf")), 0.5, delta=0.05)
        self.assertIsNone(gpu.busy(0, 1))
        idle, busy = [(0.3, "a"), (0.1, "b")], [(0.97, "c"), (0.1, "d")]
        self.assertEqual(e2e.limit(0.95, busy, busy), "the GPU")
        self.assertEqual(e2e.limit(0.5, idle, busy), "Redis's thread \"c\"")
        self.assertEqual(e2e.limit(None, busy, idle), "the daemon's thread \"c\"")
        self.assertIn("nothing alone", e2e.limit(0.5, idle, idle))


if __name__ == "__main__":
    unittest.main()
