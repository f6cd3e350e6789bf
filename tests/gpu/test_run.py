"""run.py as far as it goes without a GPU, packs that lack something, and what e2e.py and kernel_times.py make of others' output."""
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
    def run_parts(self, *words, kernels="echo cudaErrorNoDevice; exit 1"):
        """Runs run.py --no-gpu with a made-up kernel test; unpacks its results into results/."""
        for program, script in (("tests/gpu_kernels_a", kernels), ("tests/gpu_attention", "echo cudaErrorNoDevice; exit 1"),
                                ("tests/gpu_check", f'exec {GPU_CHECK} "$@"'), ("sluice", f'exec {BUILD}/sluice "$@"')):
            self.made_up(f"build/{program}", script)
        code = self.run_command([sys.executable, "-B", HERE / "run.py", "--no-gpu", "--built", self.out / "build", "--out",
                                 self.out / "out", *words])
        (self.out / "results").mkdir()
        names = subprocess.check_output(["tar", "-C", self.out / "results", "-xvzf", self.out / "out/results.tar.gz"])
        self.assertEqual(names.split()[0], b"summary.txt")
        self.summary = (self.out / "results/summary.txt").read_text()
        self.assertIn(self.summary, self.text)
        return code

    def verdict(self, part):
        """The last cell of the part's row in the table, which comes last."""
        return [line for line in self.summary.splitlines() if line.split()[:1] == [part]][-1].rpartition(" | ")[2]

    def test_first_call(self):
        parts = ["numbers", "bench", "kernels", "attention", "profile"]
        self.assertEqual(self.run_parts("--seconds", "400", *parts), 0, self.text)
        self.assertEqual([self.verdict(part) for part in parts], ["passed"] * 5)
        self.assertIn("tiny-overflow f32 rows beyond f16", self.summary)
        self.assertIn("tiny one text of 12 tokens", self.summary)

    def test_second_call(self):
        parts = ["bulk", "e2e", "memcheck", "racecheck"]
        self.assertEqual(self.run_parts("--seconds", "400", *parts), 0, self.text)
        self.assertEqual([self.verdict(part) for part in parts], ["passed"] * 4)
        self.out = self.out / "results/parts"
        content = self.content("e2e")
        self.assertEqual([entry["good"] for entry in content["numbers"]], [True] * 8)
        self.assertEqual(len(content["speed"]), 8)
        self.assertTrue(all(entry["limit"] for entry in content["speed"]))
        self.assertGreater(self.content("bulk")["speed"][0]["texts_s"], 0)

    def test_a_failed_part_runs_again_in_the_end(self):
        """A kernel that runs only when each launch is waited for; the rest is done all the same."""
        kernels = '[ "$CUDA_LAUNCH_BLOCKING" = 1 ] && echo cudaErrorNoDevice || echo FAILED why; exit 1'
        self.assertEqual(self.run_parts("kernels", "attention", kernels=kernels), 1, self.text)
        self.assertEqual(self.verdict("kernels"), "FAILED, exit code 1: gpu_kernels_a")
        self.assertEqual([self.verdict("attention"), self.verdict("kernels-blocking")], ["passed", "passed"])
        self.assertIn("FAILED why", self.summary)

    def test_a_part_that_hangs_ends_in_time_and_the_others_are_named(self):
        """It is cut short with all processes that it has started."""
        self.made_up("hang", f"echo $$ >{self.out}/pid; exec sleep 300")
        begin = time.monotonic()
        self.assertEqual(self.run_parts("--seconds", "12", "kernels", "attention", kernels=f"trap '' TERM; {self.out}/hang"), 1, self.text)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(self.verdict("kernels"), "FAILED, cut short: gpu_kernels_a")
        self.assertIn("no time for: --from attention", self.text)
        process = pathlib.Path("/proc", (self.out / "pid").read_text().strip())
        while process.exists() and time.monotonic() - begin < 60:  # the process that adopted it has not reaped it yet
            time.sleep(0.1)
        self.assertFalse(process.exists())

    def test_parts_without_time_are_no_success(self):
        self.assertEqual(self.run_parts("--seconds", "7", "--from", "kernels", kernels="sleep 3; echo cudaErrorNoDevice; exit 1"), 3)
        self.assertEqual(self.verdict("kernels"), "passed")
        self.assertIn("no time for: --from attention", self.text)

    def test_kernel_times(self):
        """ncu's table: ours by name, all others as products, in whatever unit."""
        sys.path.insert(0, str(HERE))
        import kernel_times
        head = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
        rows = [("void norm_rows<__half, 1, 3>(kernel_norm_args)", "ns", "1,500"), ("sm90_xmma_gemm_f16f16(Params)", "us", "4.0"),
                ("void norm_rows<__half, 1, 3>(kernel_norm_args)", "us", "0.5"), ("nvjet_hsh_128x256", "ms", "0.001")]
        lines = ["==PROF== Connected", head] + [f'"1","{name}","gpu__time_duration.sum","{unit}","{value}"' for name, unit, value in rows]
        self.assertEqual(kernel_times.times(lines), {"norm_rows": [1.5, 0.5], "products": [4.0, 1.0]})

    def test_pack_says_what_it_lacks(self):
        """The script names another glibc, or a library that is neither in the pack nor on the machine, before anything runs."""
        for folder in ("gpu", "golden", "support"):
            shutil.copytree(HERE.parent / folder, self.out / "tree/tests" / folder)
        pack = self.out / "tree/pack"
        (pack / "tests").mkdir(parents=True)
        command = [sys.executable, "-B", self.out / "tree/tests/gpu/run.py", "kernels", "--out", self.out / "out"]
        for old, new, said in ((b"GLIBC_2.34", b"GLIBC_9.99", "`GLIBC_9.99' not found"), (b"libc.so.6", b"libq.so.6", "libq.so.6 => not found")):
            (pack / "sluice").write_bytes(pathlib.Path("/bin/true").read_bytes().replace(old, new))
            (pack / "sluice").chmod(0o755)
            self.assertEqual(self.run_command(command), 1)
            self.assertIn(said, self.text)

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
