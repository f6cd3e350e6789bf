#!/usr/bin/env python3
"""The parts numbers and bench of the GPU check, for one or several shapes (run.py has the list of parts).

On a GPU everything defaults to the real thing; the host's test runs the same code with --backend cpu, tiny shapes and a
reference in NumPy. Exit code 1: a number is wrong, or something that was asked for could not be run.
"""
import argparse
import datetime
import os
import pathlib
import platform
import shlex
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import bench  # noqa: E402
import check_numbers  # noqa: E402
import shapes  # noqa: E402
from driver import Driver, Failed, NotHere  # noqa: E402
from report import Report  # noqa: E402


def machine(options):
    """The machine and the versions with which the figures were taken."""
    facts = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
             "commit": commit(),
             "backend": options.backend, "host": f"{platform.machine()}, {os.cpu_count()} CPUs"}
    if options.backend == "cuda":
        facts["gpu"] = said(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm",
                             "--format=csv,noheader", "-i", str(options.device)]) or "nvidia-smi says nothing"
        facts["nvcc"] = (said(["nvcc", "--version"]) or "not on the PATH").splitlines()[-1]
    for package in ("torch", "transformers", "sentence_transformers"):
        if options.reference == "transformers" or options.peers:
            facts[package] = version(package)
    return facts


def commit():
    """The commit of the source, or of the source that a pack was made from."""
    packed = shapes.SOURCE / "pack/commit"
    if packed.exists():
        return packed.read_text().strip()
    return said(["git", "-C", str(shapes.SOURCE), "describe", "--always", "--dirty"]) or "unknown"


def said(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def version(package):
    try:
        return str(__import__(package).__version__)
    except ImportError:
        return "not installed"


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["numbers", "bench"])
    parser.add_argument("--driver", required=True, type=shlex.split, help="the program gpu_check, perhaps with others before it")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="a folder for checkpoints and caches")
    parser.add_argument("--json", required=True, type=pathlib.Path, help="where the figures go")
    parser.add_argument("--shapes", default=",".join(shapes.REAL), help="by comma; default: the four real ones")
    parser.add_argument("--backend", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--reference", default="transformers", choices=["transformers", "numpy"])
    parser.add_argument("--no-graphs", dest="graphs", action="store_false", help="without CUDA graphs")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="bench: ours alone")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="bench: without torch.compile")
    parser.add_argument("--quick", action="store_true", help="short rounds and few texts, to see that it runs")
    options = parser.parse_args()
    options.shapes = options.shapes.split(",")
    unknown = [name for name in options.shapes if name not in shapes.SHAPES]
    if unknown:
        parser.error(f"no shape {', '.join(unknown)}; there are {', '.join(shapes.SHAPES)}")
    options.torch_device = f"cuda:{options.device}" if options.backend == "cuda" else "cpu"
    return options


def main():
    options = read_options()
    options.work.mkdir(parents=True, exist_ok=True)
    driver = Driver(options.driver, options.backend, options.work, options.device, options.graphs)
    report = Report(options.json, machine(options))
    for name in options.shapes:
        try:
            if options.part == "bench":
                bench.bench_shape(options, driver, report, name)
            elif name in shapes.OVERFLOW:
                check_numbers.check_overflow(options, driver, report, name)
            else:
                check_numbers.check_shape(options, driver, report, name)
        except (Failed, NotHere) as error:
            report.fail(name, str(error))
    if options.part == "bench":
        bench.show_all(report)
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
