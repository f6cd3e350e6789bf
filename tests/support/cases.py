"""Runs the cases of a unittest file in one process, in the order of the file, each with its name and its seconds:

    cd tests/integration; SLUICE_BINARY=... PYTHONPATH=../support python3 -B ../support/cases.py test_cli [CASE...]

A CASE is a name with or without its test_; without one all run. A name that matches nothing is an error, and so is a file
without cases. A case that runs for ten minutes ends the process with the stacks of its threads."""

import faulthandler
import importlib
import sys
import time
import unittest

CASE_SECONDS = 600


class Result(unittest.TextTestResult):
    def startTest(self, test):
        faulthandler.dump_traceback_later(CASE_SECONDS, exit=True)
        self.started = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        self.stream.writeln(f"    {time.monotonic() - self.started:.2f} s")
        self.stream.flush()
        super().stopTest(test)


def cases_of(module):
    """The cases defined in the classes of the file: neither inherited nor imported ones."""
    for value in list(vars(module).values()):
        if isinstance(value, type) and issubclass(value, unittest.TestCase) and value.__module__ == module.__name__:
            yield from (value(name) for name in vars(value) if name.startswith("test_"))


def main(name, *wanted):
    sys.path.insert(0, "")
    cases = list(cases_of(importlib.import_module(name)))
    wanted = {case if case.startswith("test_") else f"test_{case}" for case in wanted}
    missing = wanted - {case._testMethodName for case in cases}
    if missing or not cases:
        sys.exit(f"{name}: no case named {', '.join(sorted(missing)) or 'test_...'}")
    suite = unittest.TestSuite(case for case in cases if not wanted or case._testMethodName in wanted)
    del cases  # frees what the cases hold
    done = unittest.TextTestRunner(sys.stdout, descriptions=False, verbosity=2, resultclass=Result).run(suite)
    sys.exit(not done.wasSuccessful())


if __name__ == "__main__":
    main(*sys.argv[1:])
