"""The clients of tools/clients as a user has them: Python's from a wheel, Node's in a node_modules."""

import atexit
import functools
import os
import pathlib
import shutil
import subprocess
import tempfile

import process

SOURCE = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = SOURCE / "tools/clients"


def run(*argv, **options):
    """Returns the command's output; if it fails, the error has it."""
    environment = process.clean_environment({"PYTHONPATH": ""})
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False, env=environment, **options)
    assert done.returncode == 0, f"{argv} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def python_of(folder, requirements):
    """The interpreter of an environment with these packages."""
    return pathlib.Path(run(SOURCE / "tests/support/venv.sh", SOURCE / "build" / folder, SOURCE / "tests" / requirements).strip())


def packages_of(python):
    return next(python.parents[1].glob("lib/python3*/site-packages"))


def clients_python():
    return python_of("venv-clients", "clients/requirements-clients.txt")


@functools.cache
def install_python():
    """Builds the wheel and unpacks it, both without the network, once for a process; returns the wheel and the folder to import from."""
    directory = tempfile.mkdtemp(prefix="sluice-wheel-")
    atexit.register(shutil.rmtree, directory)
    folder = os.path.join(directory, "site-packages")
    pip = [clients_python(), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run(*pip, "wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", directory, CLIENTS / "python")
    wheel = next(pathlib.Path(directory).glob("*.whl"))
    run(*pip, "install", "--no-index", "--no-deps", "--target", folder, wheel)
    return wheel, folder


def install_node(directory):
    """What package.json says that a package has, beside Debian's `redis`; modules in `directory` can import both."""
    modules = os.path.join(directory, "node_modules")
    os.mkdir(modules)
    os.symlink("/usr/share/nodejs/redis", os.path.join(modules, "redis"))
    os.mkdir(os.path.join(modules, "sluice-client"))
    for name in ("package.json", "index.js", "index.d.ts"):
        shutil.copy(CLIENTS / "node" / name, os.path.join(modules, "sluice-client"))
