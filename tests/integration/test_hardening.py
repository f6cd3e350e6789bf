"""Hardening flags, checked by their effect in the program itself, because a tool may ignore a flag. Also the order in
which a bulk job makes its files durable."""
# ctest-once

import glob
import os
import re
import subprocess
import unittest

from bulk_case import FAILED, BulkCase
from daemon import BINARY, SOURCE

SHIM = os.path.join(os.path.dirname(BINARY), "tests", "libcalls_shim.so")



def tool(*argv):
    return subprocess.run([*argv, BINARY], capture_output=True, check=True, timeout=120).stdout.decode()


def own_names():
    """The functions that our headers declare; the program also contains start-up files and, with GPU support, NVIDIA's
    runtime and kernels."""
    names = set()
    for path in glob.glob(os.path.join(SOURCE, "src", "*", "*.h")):
        with open(path, encoding="utf-8") as file:
            names.update(re.findall(r"\b(\w+)\(", file.read()))
    return names


def is_debug_build():
    with open(os.path.join(os.path.dirname(BINARY), "CMakeCache.txt"), encoding="utf-8") as file:
        return "CMAKE_BUILD_TYPE:STRING=Debug\n" in file.read()


class Hardening(unittest.TestCase):
    def test_addresses_are_random_and_tables_read_only(self):
        self.assertRegex(tool("readelf", "-hW"), r"Type:\s+DYN ")
        dynamic = tool("readelf", "-dW")
        self.assertRegex(dynamic, r"\(FLAGS\)\s+.*BIND_NOW")
        self.assertRegex(dynamic, r"\(FLAGS_1\)\s+Flags: .*NOW.*PIE")
        self.assertNotRegex(dynamic, r"\((RPATH|RUNPATH|TEXTREL)\)")
        segments = tool("readelf", "-lW")
        self.assertRegex(segments, r"GNU_RELRO\s")
        self.assertRegex(segments, r"GNU_STACK\s.*\sRW\s")
        self.assertNotRegex(segments, r"LOAD\s.*\sRWE\s")

    def test_stacks_are_guarded(self):
        """An overflow has to cross a guard word, and a large frame touches each page, so that it cannot skip the guard
        page."""
        self.assertRegex(tool("readelf", "--dyn-syms", "-W"), r"__stack_chk_fail\b")
        code = tool("objdump", "-d", "--no-show-raw-insn")
        probe = r"orq\s+\$0x0,(0x[0-9a-f]+)?\(%rsp\)" if "x86-64" in code else r"str\s+xzr, \[sp, #1024\]"
        self.assertGreater(len(re.findall(probe, code)), 10)

    def test_lengths_are_checked(self):
        """__memset_chk appears at level 3 only, because our sizes are known at run time, not at compile time."""
        if is_debug_build():
            self.skipTest("a build without optimization, which _FORTIFY_SOURCE needs")
        symbols = tool("readelf", "--dyn-syms", "-W")
        for name in ("__memcpy_chk", "__memset_chk", "__snprintf_chk"):
            self.assertRegex(symbols, rf"\b{name}\b")

    def test_jumps_land_on_marks(self):
        """Each function whose address another file may take begins with ENDBR64. (The mark for the whole program needs
        a C library that was built the same way, and Debian 12's was not.)"""
        if "X86-64" not in tool("readelf", "-hW"):
            self.skipTest("another processor than x86-64")
        text = re.search(r"\] \.text\s+PROGBITS\s+([0-9a-f]+) ([0-9a-f]+) ", tool("readelf", "-SW"))
        move = int(text[2], 16) - int(text[1], 16)
        functions = re.findall(r"^\s+\d+: ([0-9a-f]+)\s+[1-9]\d* FUNC\s+GLOBAL \w+\s+\d+ (\S+)$", tool("readelf", "-sW"), re.M)
        with open(BINARY, "rb") as file:
            program = file.read()
        declared = own_names()
        marked = {name: program[int(address, 16) + move:][:4] == b"\xf3\x0f\x1e\xfa"
                  for address, name in functions if name in declared}
        self.assertGreater(len(marked), 300)
        self.assertEqual([name for name, has in marked.items() if not has], [])


class Durable(BulkCase):
    """A file whose name is not durable can be lost: the folder is synced after each rename, and before the journal is
    removed."""

    def calls(self, *arguments, code=0):
        self.write("calls", "")
        self.job(*arguments, code=code, environment={"LD_PRELOAD": SHIM, "CALLS_SHIM": self.path("calls")})
        return self.content(self.path("calls")).decode().splitlines()

    def after(self, calls, first, *others):
        """Asserts that the calls come in this order."""
        at = calls.index(first)
        for call in others:
            self.assertIn(call, calls[at:], f"{call} after {first}, in {calls}")
            at += calls[at:].index(call)

    def test_folders_are_synced(self):
        source, folder = self.write("in.jsonl", '{"text": "hello", "n": 1}\n{broken\n'), self.directory
        for name in ("v.npy", "v.jsonl", "v.f32"):
            output = self.path(name)
            calls = self.calls(source, "--output", output, "--id-field", "n", code=FAILED)
            journal, manifest = output + ".job/journal", output + ".manifest.json"
            self.after(calls, f"fsync {output}.job", f"fsync {folder}", f"fdatasync {journal}", f"fsync {manifest}.new",
                       f"rename {manifest}", f"fsync {folder}", f"unlink {journal}")
            calls = self.calls(source, "--output", output, "--id-field", "n", code=FAILED)  # again, to retry the failed row
            self.after(calls, f"rename {manifest}", f"fsync {folder}", f"rename {output}.failures.jsonl", f"fsync {folder}")
            if name == "v.jsonl":
                self.after(calls, f"rename {output}", f"fsync {folder}", f"rename {manifest}")

    def test_a_folder_of_shards_is_synced(self):
        source, output = self.write("in.txt", "a\n" * 5000), self.path("out")
        calls = self.calls(source, "--output", output + "/", "--shard-rows", "1000")
        self.after(calls, f"fsync {output}/.job", f"fsync {output}", f"fsync {self.directory}")
        for number in range(5):
            self.after(calls, f"fsync {output}", f"fdatasync {output}/vectors-{number:05}.npy", f"rename {output}/manifest.json",
                       f"fsync {output}", f"unlink {output}/.job/journal")
        self.assertGreaterEqual(calls.count(f"fsync {output}"), 7)
