"""Builds the Dockerfile and starts docker-compose.yml on this machine, then checks from outside: users, a crash of a worker and of
Redis, an empty password, keys of the gateway, what Prometheus sees. `make containers` runs it.

No image registry is needed: debian:12-slim is made by debootstrap, and Debian's redis-server and prometheus replace the images of
those names (7.0 in place of 7.2, 2.42 in place of 3.5). Grafana is not in Debian 12, so its service is not started. The test needs
root and Debian's packages of podman; without them it is skipped, and says why. All its files are in build/containers: the base system
and the layers of the images are kept there for the next time."""

import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

import redis

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORK = os.path.join(SOURCE, "build", "containers")
PROJECT = os.path.join(WORK, "sluice")  # the folder's name is the project's
TOOLS = ("podman", "buildah", "podman-compose", "runc", "debootstrap", "iptables", "/usr/lib/podman/netavark",
         "/usr/lib/podman/aardvark-dns")
ROLES = ("producer", "worker", "operator")
STREAM = "sluice:{default}:requests"
REPLY = "sluice:{default}:reply:"
NAMES = {"redis": "sluice_redis_1", "worker-1": "sluice_worker-1_1", "worker-2": "sluice_worker-2_1",
         "gateway": "sluice_gateway_1", "prometheus": "sluice_prometheus_1"}
USERS = {"redis": "redis", "worker-1": "sluice", "worker-2": "sluice", "gateway": "sluice", "prometheus": "nobody"}

# Settings for a virtual machine without systemd, where podman's usual requests to the kernel fail; and its own storage.
CONTAINERS_CONF = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
[network]
network_backend = "netavark"
"""
STORAGE_CONF = f"""[storage]
driver = "overlay"
graphroot = "{WORK}/storage"
runroot = "{WORK}/run"
"""
# The images that the file names, made of Debian's packages.
STAND_INS = {"docker.io/library/redis:7.2-bookworm": """FROM docker.io/library/debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends redis-server && rm -rf /var/lib/apt/lists/* \\
    && mkdir /data && chown redis:redis /data
VOLUME /data
WORKDIR /data
""", "docker.io/prom/prometheus:v3.5.0": """FROM docker.io/library/debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends prometheus && rm -rf /var/lib/apt/lists/* \\
    && mkdir /prometheus && chown nobody:nogroup /prometheus
VOLUME /prometheus
ENTRYPOINT ["/bin/prometheus"]
"""}
BUILD = ("buildah", "bud", "--isolation=chroot", "--network=host", "--layers", "-t")
CERTIFICATES = "/usr/local/share/ca-certificates"  # authorities that this machine trusts beside Debian's list, as behind a proxy


def say(text):
    print(f"containers: {text}", file=sys.stderr, flush=True)


def run(*argv, check=True, timeout=550, **options):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=False, text=True,
                          **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done


def timed(what, *argv, **options):
    start = time.monotonic()
    run(*argv, **options)
    say(f"{what}: {time.monotonic() - start:.0f} s")


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def has_image(name):
    return run("podman", "image", "exists", name, check=False).returncode == 0


def build_images():
    """Runs debootstrap once; builds everything else on layers that are cached."""
    root = os.path.join(WORK, "root")
    if not os.path.exists(os.path.join(root, "complete")):
        shutil.rmtree(root, ignore_errors=True)
        timed("debootstrap", "debootstrap", "--variant=minbase", "bookworm", root)
        write(os.path.join(root, "complete"), "")
    if not has_image("docker.io/library/debian:12-slim"):
        timed("the base image", "sh", "-c", 'tar -C "$0" --exclude=./complete -c . | podman import - docker.io/library/debian:12-slim', root)
    for name, text in STAND_INS.items():
        recipe = write(os.path.join(WORK, "Containerfile"), text)
        timed(f"the stand-in for {name}", *BUILD, name, "-f", recipe, os.path.dirname(recipe))
    timed("the image of Sluice", *BUILD, "sluice:latest", SOURCE)


def make_project(ports):
    """Copies the files that docker-compose.yml names, with other ports on this host, and sets passwords."""
    shutil.rmtree(PROJECT, ignore_errors=True)
    os.makedirs(os.path.join(PROJECT, "config", "secrets"), mode=0o700)
    for name in ("redis.conf", "mend-aof.sh", "make-users.sh"):
        shutil.copy(os.path.join(SOURCE, "config", name), os.path.join(PROJECT, "config"))
    for name in ("acl", "monitoring"):
        shutil.copytree(os.path.join(SOURCE, "config", name), os.path.join(PROJECT, "config", name))
    with open(os.path.join(SOURCE, "docker-compose.yml"), encoding="utf-8") as file:
        text = file.read()
    for inside, port in ports.items():
        assert text.count(f'"127.0.0.1:{inside}:{inside}"') == 1
        text = text.replace(f'"127.0.0.1:{inside}:{inside}"', f'"127.0.0.1:{port}:{inside}"')
    write(os.path.join(PROJECT, "docker-compose.yml"), text)
    for role in ROLES:
        set_password(role, f"pass-of-{role}-{os.urandom(8).hex()}")


def password_file(role):
    return os.path.join(PROJECT, "config", "secrets", role + "_password")


def set_password(role, password):
    os.chmod(write(password_file(role), password), 0o644)


def password(role):
    with open(password_file(role), encoding="utf-8") as file:
        return file.read().strip()


def compose(*words, **options):
    return run("podman-compose", "-p", "sluice", *words, cwd=PROJECT, **options)


def inspect(service, field):
    return run("podman", "inspect", "--format", "{{" + field + "}}", NAMES[service]).stdout.strip()


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file)


class Watch(threading.Thread):
    """Searches the arguments of all processes, again and again, for words that must not be there."""

    def __init__(self, words):
        super().__init__(daemon=True)
        self.words, self.seen, self.looks, self.ended = [word.encode() for word in words], set(), 0, threading.Event()

    def run(self):
        while not self.ended.wait(0.001):
            for path in glob.glob("/proc/[0-9]*/cmdline"):
                try:
                    with open(path, "rb") as file:
                        line = file.read()
                except OSError:
                    continue
                self.looks += 1
                self.seen.update(line for word in self.words if word in line)


def setUpModule():
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0:
        raise unittest.SkipTest("containers.stack: only root can start containers here")
    if missing:
        raise unittest.SkipTest(f"containers.stack: not installed: {', '.join(missing)} (cmake/deps.sh --containers)")
    os.makedirs(WORK, exist_ok=True)
    os.environ["CONTAINERS_CONF"] = write(os.path.join(WORK, "containers.conf"), CONTAINERS_CONF)
    os.environ["CONTAINERS_STORAGE_CONF"] = write(os.path.join(WORK, "storage.conf"), STORAGE_CONF)
    build_images()


class Stack(unittest.TestCase):
    def setUp(self):
        with socket.socket() as one, socket.socket() as other, socket.socket() as third:
            for probe in (one, other, third):
                probe.bind(("127.0.0.1", 0))
            self.port, self.watch_port, self.http_port = (probe.getsockname()[1] for probe in (one, other, third))
        make_project({6379: self.port, 9090: self.watch_port, 8080: self.http_port})
        self.addCleanup(lambda: compose("down", "-v", "-t", "3", check=False))

    def wait(self, condition, what, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                found = condition()
            except (redis.ConnectionError, redis.BusyLoadingError, AssertionError, OSError):
                found = None
            if found:
                return found
            time.sleep(0.05)
        logs = "\n".join(f"--- {name}\n{run('podman', 'logs', '--tail', '30', name, check=False).stdout}" for name in NAMES.values())
        self.fail(f"waited {seconds} s for {what}\n{logs}")

    def login(self, role=None, word=None):
        return redis.Redis(host="127.0.0.1", port=self.port, username=role and "sluice-" + role,
                           password=word if word is not None else role and password(role), socket_timeout=10)

    def submit(self, count):
        """Requests that Redis has confirmed."""
        producer = self.login("producer")
        return [producer.xadd(STREAM, {"text": f"text number {number}", "encoding": "f32"}).decode() for number in range(count)]

    def wait_done(self, ids):
        producer = self.login("producer")
        left = set(ids)

        def all_done():
            left.difference_update([name for name in left if producer.hget(REPLY + name, "status") == b"done"])
            return not left
        self.wait(all_done, f"replies to {len(left)} requests")

    def pid(self, service):
        return self.wait(lambda: inspect(service, ".State.Running") == "true" and int(inspect(service, ".State.Pid")), service)

    def kill(self, service):
        """kill -9, as the kernel would for want of memory; the container is started again by its own rule."""
        pid = self.pid(service)
        os.kill(pid, 9)
        self.wait(lambda: self.pid(service) != pid, f"another {service}")

    def test_empty_password(self):
        for role in ROLES:
            with self.subTest(role=role):
                set_password(role, "\n")
                compose("up", "-d", "--no-build", "redis")
                try:
                    self.wait(lambda: inspect("redis", ".State.ExitCode") == "78", "Redis to refuse")  # again and again
                    self.assertIn(f"{role}_password is empty", run("podman", "logs", NAMES["redis"]).stdout)
                    with self.assertRaises(redis.ConnectionError):
                        self.login().ping()
                finally:
                    compose("down", "-v", "-t", "0")
                    set_password(role, "not empty")

    def test_the_stack(self):
        watch = Watch([password(role) for role in ROLES])
        watch.start()
        began = time.monotonic()
        compose("up", "-d", "--no-build", *NAMES)
        self.wait(self.login("producer").ping, "Redis")
        self.wait_done(self.submit(20))
        say(f"from up to 20 vectors: {time.monotonic() - began:.0f} s")
        with self.subTest("users"):
            self.check_logins()
        for service, user in USERS.items():
            with self.subTest("rights", service=service):
                self.check_rights(service, user)
        with self.subTest("health"):
            for name in NAMES.values():
                run("podman", "healthcheck", "run", name)
        with self.subTest("gateway"):
            self.check_gateway()
        with self.subTest("metrics"):
            self.check_prometheus()
        with self.subTest("kill"):
            for service in ("worker-1", "redis", "worker-2", "redis"):
                ids = self.submit(300)
                self.kill(service)
                self.wait(self.login("producer").ping, "Redis")
                self.wait_done(ids + self.submit(20))
        watch.ended.set()
        watch.join()
        self.assertGreater(watch.looks, 10000)
        self.assertEqual(watch.seen, set(), "a password in the arguments of a process")
        with self.subTest("end"):
            self.check_end()

    def check_logins(self):
        for who in (self.login(), self.login("producer", "wrong"), self.login("worker", "")):
            with self.assertRaises((redis.AuthenticationError, redis.ResponseError)):
                who.ping()
        self.assertTrue(self.login("operator").ping())
        self.assertEqual(self.login("operator").config_get("maxmemory"), {"maxmemory": str(1 << 30)})
        for role in ("producer", "worker"):
            with self.assertRaises(redis.exceptions.NoPermissionError):
                self.login(role).set("sluice:{default}:paused", "1")

    def check_rights(self, service, user):
        number = run("podman", "exec", NAMES[service], "id", "-u", user).stdout.strip()
        processes = run("podman", "top", NAMES[service], "hpid").stdout.split()[1:]
        self.assertEqual(len(processes), 1, "one process, so that it gets the signals")
        status = status_of(processes[0])
        self.assertNotEqual(number, "0")
        self.assertEqual(status["Uid"].split(), [number] * 4)
        self.assertNotIn("0", status["Gid"].split() + status["Groups"].split())
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[name], 16), 0, name)
        self.assertEqual(status["NoNewPrivs"], "1")
        for place in ("/here", "/usr/local/here", "/etc/here"):
            self.assertNotEqual(run("podman", "exec", "--user", "root", NAMES[service], "touch", place, check=False).returncode, 0)
        self.assertGreaterEqual(int(inspect(service, ".HostConfig.Memory")), 1 << 30)

    def embed(self, key):
        """The status of a call, and how many numbers its vector has."""
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        call = urllib.request.Request(f"http://127.0.0.1:{self.http_port}/embed", b'{"inputs": "hello"}', headers)
        try:
            with urllib.request.urlopen(call, timeout=30) as answer:
                return answer.status, len(json.load(answer)[0])
        except urllib.error.HTTPError as refusal:
            return refusal.code, 0

    def check_gateway(self):
        """It answers a call with a key that `sluice keys create` made, and refuses others."""
        inside = "/run/secrets/operator_password"
        made = run("podman", "run", "--rm", "--network=host", "--read-only", "-v", f"{password_file('operator')}:{inside}:ro",
                   "-e", f"SLUICE_REDIS_PASSWORD_FILE={inside}", "sluice:latest", "keys", "create", "search",
                   f"--redis=redis://sluice-operator@127.0.0.1:{self.port}")
        key = re.search(r"(?m)^\S{20,}$", made.stdout)[0]  # beside a line for people
        self.wait(lambda: self.embed(key) == (200, 192), "the gateway to know the key")
        for other in (None, key[:-1]):
            self.assertEqual(self.embed(other), (401, 0))

    def ask_prometheus(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.watch_port}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    def check_prometheus(self):
        """It scrapes both workers, counts what they did, and has the alerts, none of which fires."""
        self.wait(lambda: {target["labels"]["instance"]: target["health"] for target in self.ask_prometheus("targets")["activeTargets"]} ==
                  {"worker-1:9464": "up", "worker-2:9464": "up"}, "both workers to be scraped")
        with open(os.path.join(SOURCE, "config", "monitoring", "alerts.yml"), encoding="utf-8") as file:
            alerts = re.findall(r"- alert: (\w+)", file.read())
        self.wait(lambda: [(rule["name"], rule["health"]) for group in self.ask_prometheus("rules")["groups"] for rule in group["rules"]] ==
                  [(alert, "ok") for alert in alerts], "the alerts to be looked at")
        done = "query?query=sum(sluice_requests_total%7Bcode%3D%22done%22%7D)"
        self.wait(lambda: [result for result in self.ask_prometheus(done)["result"] if int(result["value"][1]) >= 20], "the requests to be counted")
        self.assertEqual([alert for alert in self.ask_prometheus("alerts")["alerts"] if alert["state"] == "firing"], [])

    def check_end(self):
        run("podman", "stop", "-t", "20", NAMES["worker-1"], NAMES["worker-2"], NAMES["gateway"], NAMES["prometheus"])
        run("podman", "stop", "-t", "20", NAMES["redis"])
        self.assertEqual({service: inspect(service, ".State.ExitCode") for service in NAMES}, dict.fromkeys(NAMES, "0"))
        run("podman", "start", NAMES["redis"])
        self.wait(self.login("producer").ping, "Redis")
        set_password("worker", "another")
        run("podman", "start", NAMES["worker-1"])
        self.wait(lambda: inspect("worker-1", ".State.ExitCode") == "77", "a worker with a wrong password to be refused")
        self.assertIn("WRONGPASS", run("podman", "logs", "--tail", "20", NAMES["worker-1"]).stdout)


@unittest.skipUnless(os.environ.get("CUDA") == "ON", "containers.cuda: not asked for (make containers CUDA=ON)")
class Cuda(unittest.TestCase):
    def test_without_a_gpu(self):
        """The image with CUDA finds that there is no driver, says so, and computes on the CPU."""
        timed("the image with CUDA", *BUILD, "sluice:cuda", "--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro", "--build-arg", "CUDA=ON",
              SOURCE, timeout=3600)
        for library in ("libcublasLt.so.13", "libcublas.so.13"):
            run("podman", "run", "--rm", "--network=none", "--entrypoint", "test", "sluice:cuda", "-s", "/usr/local/cuda/lib64/" + library)

        def embed(backend, check=True):
            return run("podman", "run", "--rm", "-i", "--network=none", "--read-only", "sluice:cuda", "embed", "--backend", backend,
                       input="hello world\n", check=check)
        self.assertEqual(len(json.loads(embed("auto").stdout.splitlines()[-1])), 192)
        refused = embed("cuda", check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("no NVIDIA driver", refused.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
