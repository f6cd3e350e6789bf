"""What the compiler and the linker were asked for, looked for in the program itself: a flag that no tool took is not there."""
# ctest-once

import glob
import os
import re
import subprocess
import unittest

from daemon import BINARY, SOURCE



def tool(*argv):
    return subprocess.run([*argv, BINARY], capture_output=True, check=True, timeout=120).stdout.decode()


def own_names():
    """What our headers declare: the program also holds start-up files, and where it can use GPUs NVIDIA's runtime and kernels."""
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
        """A word that an overflow has to cross, and a large frame that cannot step over the guard page: it touches each page."""
        self.assertRegex(tool("readelf", "--dyn-syms", "-W"), r"__stack_chk_fail\b")
        code = tool("objdump", "-d", "--no-show-raw-insn")
        probe = r"orq\s+\$0x0,(0x[0-9a-f]+)?\(%rsp\)" if "x86-64" in code else r"str\s+xzr, \[sp, #1024\]"
        self.assertGreater(len(re.findall(probe, code)), 10)

    def test_lengths_are_checked(self):
        """__memset_chk comes of level 3 only: our sizes are known when the program runs, not when it is compiled."""
        if is_debug_build():
            self.skipTest("a build without optimization, which _FORTIFY_SOURCE needs")
        symbols = tool("readelf", "--dyn-syms", "-W")
        for name in ("__memcpy_chk", "__memset_chk", "__snprintf_chk"):
            self.assertRegex(symbols, rf"\b{name}\b")

    def test_jumps_land_on_marks(self):
        """Each function that another file may take the address of begins with ENDBR64. (The mark for the whole program needs
        a C library that was built so, too, and Debian 12's was not.)"""
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
