"""The Debian package of `make deb`: lintian finds no error, systemd rates the units as restricted enough, and in a clean Debian
12 the package installs, answers a request as its unit starts it, and leaves no files when it is purged. `make debcheck` runs
it.

Needs root, network access to Debian's mirror, and the packages debootstrap, lintian and systemd. The clean system is kept in
build/package. systemd itself does not run there: the test starts the unit's command by hand."""

import configparser
import glob
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request

from paths import leads_nowhere

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORK = os.path.join(SOURCE, "build", "package")
ROOT = os.path.join(WORK, "root")
MOST_EXPOSED = 1.5


def run(*argv, code=0, **options):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=550, check=False, text=True, **options)
    if done.returncode != code:
        raise AssertionError(f"{shlex.join(argv)} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def inside(*argv, **options):
    return run("chroot", ROOT, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", *argv, **options)


def files():
    """The files of the clean system, without those that apt and dpkg keep for themselves."""
    own = ("/var/lib/apt", "/var/lib/dpkg", "/var/cache/apt", "/var/cache/debconf", "/var/cache/ldconfig", "/var/log", "/tmp", "/proc", "/dev")
    found = {path.removeprefix(ROOT) for path in run("find", ROOT, "-xdev").splitlines()}
    return {path for path in found if not path.startswith(own)}


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.package = max(glob.glob(os.path.join(SOURCE, "build", "sluice_*.deb")), key=os.path.getmtime)
        if not os.path.exists(os.path.join(ROOT, "var/lib/dpkg/status")):
            run("debootstrap", "--variant=minbase", "bookworm", ROOT)
            inside("apt-get", "install", "-y", "--no-install-recommends", "redis-server")
        run("mount", "-t", "proc", "proc", ROOT + "/proc")
        cls.addClassCleanup(run, "umount", ROOT + "/proc")

    def test_lintian(self):
        self.assertNotRegex(run("lintian", "--fail-on", "error", "--allow-root", self.package), "(?m)^[EW]:")

    def test_paths_lead_somewhere(self):
        """No path in pages, comments, alerts and units is wrong."""
        run("dpkg-deb", "-x", self.package, os.path.join(WORK, "unpacked"))
        wrong, count = leads_nowhere(os.path.join(WORK, "unpacked"), "/usr")
        self.assertEqual(wrong, [])
        self.assertGreater(count, 200)

    def test_units(self):
        run("dpkg-deb", "-x", self.package, os.path.join(WORK, "unpacked"))
        for unit in ("sluice.service", "sluice@.service", "sluice-gateway.service"):
            path = os.path.join(WORK, "unpacked/usr/lib/systemd/system", unit)
            shown = run("systemd-analyze", "security", "--offline=true", path)
            exposed = float(re.search(r"Overall exposure level for .*: ([\d.]+)", shown)[1])
            print(f"{unit}: exposure {exposed}")
            self.assertLessEqual(exposed, MOST_EXPOSED)

    def test_installed_started_purged(self):
        inside("dpkg", "--purge", "sluice")
        run("mkdir", "-p", ROOT + "/var/cache/private", ROOT + "/var/lib/private")  # systemd's
        before, began = files(), time.monotonic()
        name = os.path.join("/tmp", os.path.basename(self.package))
        run("cp", self.package, ROOT + name)
        run("rm", "-f", ROOT + "/tmp/redis.sock")
        told = inside("apt-get", "install", "-y", "--no-install-recommends", name)
        self.assertTrue(os.path.exists(ROOT + re.search("\nsluice: (/.*[.]md)\n", told)[1]), "the page that apt names")
        self.assertIn("/usr/bin/sluice", files() - before)
        server = subprocess.Popen(["chroot", ROOT, "redis-server", "--port", "0", "--unixsocket", "/tmp/redis.sock", "--save", ""],
                                  stdout=subprocess.DEVNULL)
        self.addCleanup(server.kill)
        while not os.path.exists(ROOT + "/tmp/redis.sock"):
            self.assertIsNone(server.poll(), "redis-server")
            time.sleep(0.05)
        daemon = self.start_as_the_unit_does("sluice")
        self.addCleanup(daemon.kill)
        answer = inside("/usr/bin/sluice", "submit", "--wait", "--redis", "/tmp/redis.sock", "hello world")
        print(f"from apt-get to the first vector: {time.monotonic() - began:.0f} s")
        self.assertIn('"dim":192', answer)
        self.ask_a_gateway()
        again = inside("apt-get", "install", "-y", "--allow-downgrades", "--reinstall", name)  # an upgrade, as far as files go
        self.assertNotIn("\nsluice: ", again)
        self.assertIn("1 alive", inside("/usr/bin/sluice", "workers", "check", "--redis", "/tmp/redis.sock"))
        daemon.terminate()
        self.assertEqual(daemon.wait(timeout=30), 0)
        server.terminate()
        server.wait(timeout=30)
        run("mkdir", "-p", ROOT + "/etc/sluice/secrets", ROOT + "/var/cache/private/sluice", ROOT + "/var/lib/private/sluice/files")
        run("ln", "-s", "private/sluice", ROOT + "/var/lib/sluice")
        run("touch", ROOT + "/etc/sluice/sluice.json", ROOT + "/etc/sluice/secrets/worker_password")
        said = inside("apt-get", "purge", "-y", "sluice")
        inside("apt-get", "autoremove", "-y", "--purge")
        kept = {"/etc/sluice", "/etc/sluice/secrets", "/etc/sluice/secrets/worker_password"}
        self.assertEqual(files() - before, kept)
        self.assertIn("\nsluice: the passwords in /etc/sluice/secrets stay; when nothing needs them any more: rm -r /etc/sluice\n", said)
        run("rm", "-r", ROOT + "/etc/sluice")
        inside("apt-get", "install", "-y", "--no-install-recommends", name)
        run("mkdir", ROOT + "/etc/sluice")
        self.assertNotIn("passwords", inside("apt-get", "purge", "-y", "sluice"))
        inside("apt-get", "autoremove", "-y", "--purge")
        self.assertEqual(files() - before, set())

    def start_as_the_unit_does(self, name, *settings):
        unit = configparser.ConfigParser(interpolation=None, strict=False)
        unit.optionxform = str
        unit.read(f"{ROOT}/usr/lib/systemd/system/{name}.service")
        words = unit["Service"]["ExecStart"].split()
        environment = unit["Service"]["Environment"].replace("%C", "/tmp").replace("%S", "/tmp").split()
        return subprocess.Popen(["chroot", ROOT, "env", "-i", *environment, "SLUICE_REDIS=/tmp/redis.sock", *settings, *words],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask_a_gateway(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        gateway = self.start_as_the_unit_does("sluice-gateway", f"SLUICE_LISTEN={address}")
        self.addCleanup(gateway.kill)
        while True:
            self.assertIsNone(gateway.poll(), "the gateway")
            try:
                with urllib.request.urlopen(f"http://{address}/v1/models", timeout=30) as answer:
                    self.assertIn(b'"sluice-mini-en"', answer.read())
                break
            except urllib.error.URLError as error:
                self.assertIsInstance(error.reason, ConnectionRefusedError)
                time.sleep(0.05)
        gateway.terminate()
        self.assertEqual(gateway.wait(timeout=30), 0)


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("tests/package/deb.py wants to be root")
    unittest.main(verbosity=2)
