"""Checks of the container files that need no container runtime: they parse, and every path, flag, command, variable and
package in them exists. tests/containers/stack.py builds and starts them."""
# ctest-cost: 15

import os
import re
import shutil
import subprocess
import sys

import redis
import yaml

import process
from case import SluiceCase
from daemon import BINARY, SOURCE
from redis_server import append_only, command, connect

sys.path.insert(0, os.path.join(SOURCE, "tests", "docs"))
from blocks import put_in  # noqa: E402


def read(*names):
    with open(os.path.join(SOURCE, *names), encoding="utf-8") as file:
        return file.read()


class Containers(SluiceCase):
    def compose(self):
        return yaml.safe_load(read("docker-compose.yml"))

    def test_compose_config(self):
        """Debian's docker-compose accepts the file."""
        self.assertIsNotNone(shutil.which("docker-compose"), "docker-compose is not installed: run make deps")
        copy = self.path("copy")
        os.mkdir(copy)
        shutil.copy(os.path.join(SOURCE, "docker-compose.yml"), copy)
        result = subprocess.run(["docker-compose", "-f", os.path.join(copy, "docker-compose.yml"), "--profile", "grafana", "config"],
                                capture_output=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        shown = yaml.safe_load(result.stdout)
        self.assertEqual(set(shown["services"]), set(self.compose()["services"]))

    def test_compose_services(self):
        services = self.compose()["services"]
        workers = [service for name, service in services.items() if name.startswith("worker")]
        self.assertEqual(len(workers), 2)
        for service in services.values():
            self.assertIn("healthcheck", service)
        for service in (services["redis"], *workers):
            self.assertIn("worker_password", service["secrets"])
        self.assertEqual(services["gateway"]["secrets"], ["producer_password"])
        self.assertIn("--keys=redis", services["gateway"]["command"])
        for name in ("redis", "prometheus", "grafana"):
            self.assertTrue([volume for volume in services[name]["volumes"] if volume.startswith(f"{name}-data:")], "its data outlives it")
        self.assertEqual([name for name, service in services.items() if "profiles" in service], ["grafana"])

    def test_what_watches(self):
        """Prometheus scrapes each worker at its address, and Grafana gets that Prometheus and our dashboard."""
        services = self.compose()["services"]
        port = services["worker-1"]["environment"]["SLUICE_HTTP"].rpartition(":")[2]
        jobs = yaml.safe_load(read("config", "monitoring", "prometheus.yml"))["scrape_configs"]
        self.assertEqual(jobs[0]["static_configs"], [{"targets": [f"{name}:{port}" for name in services if name.startswith("worker")]}])
        mounted = dict(volume.split(":")[1::-1] for name in ("prometheus", "grafana") for volume in services[name]["volumes"])
        self.assertIn("--config.file=/etc/prometheus/prometheus.yml", services["prometheus"]["command"])
        self.assertEqual(mounted["/etc/prometheus/alerts.yml"], "./config/monitoring/alerts.yml")  # beside prometheus.yml, which names it
        source = yaml.safe_load(read(mounted["/etc/grafana/provisioning/datasources/sluice.yml"]))["datasources"][0]
        self.assertEqual(source["url"], "http://prometheus:9090")
        folder = yaml.safe_load(read(mounted["/etc/grafana/provisioning/dashboards/sluice.yml"]))["providers"][0]["options"]["path"]
        self.assertEqual(mounted[folder + "/grafana.json"], "./config/monitoring/grafana.json")

    def test_compose_gives_no_more_than_is_needed(self):
        """The file asks for the limits that tests/containers/stack.py checks in a kernel, and for those that its tools
        ignore (podman-compose leaves out pids_limit)."""
        services = self.compose()["services"]
        users = {name: service["user"] for name, service in services.items() if service["image"] != "sluice:latest"}  # the Dockerfile sets theirs
        self.assertEqual(users, {"redis": "redis", "prometheus": "nobody", "grafana": "472"})
        for service in services.values():
            self.assertEqual((service["read_only"], service["cap_drop"]), (True, ["ALL"]))
            self.assertEqual(service["security_opt"], ["no-new-privileges:true"])
            self.assertRegex(str(service["mem_limit"]), r"^\d+[mg]$")
            self.assertGreater(service["pids_limit"], 0)
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), port)

    def test_compose_paths(self):
        compose = self.compose()
        for service in compose["services"].values():
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                if source.startswith("."):
                    self.assertTrue(os.path.exists(os.path.join(SOURCE, source)), source)
                else:
                    self.assertIn(source, compose["volumes"])
        for secret in (secret["file"] for secret in compose["secrets"].values()):
            self.assertIn(f"/{os.path.relpath(secret)}\n", read(".gitignore"), "the password file must never be committed")
            self.assertIn(f"{os.path.dirname(os.path.relpath(secret))}\n", read(".dockerignore"), "nor copied into an image")

    def test_compose_commands(self):
        """Every flag of the commands in the file is one of that command's own --help."""
        services = self.compose()["services"]
        commands = []
        for service in services.values():
            if "build" in service:
                commands.append(service["command"])
                check = service["healthcheck"]["test"]
                self.assertEqual(check[:2], ["CMD", "/usr/local/bin/sluice"])
                commands.append(check[2:])
        commands.append(services["gateway"]["command"])
        self.assertGreaterEqual(len(commands), 5)
        for command in commands:
            self.check_command(command)

    def check_command(self, command):
        text = self.run_sluice(command[0], "--help").stdout.decode()
        for word in command[1:]:
            if word.startswith("--"):
                self.assertRegex(text, re.escape(word.split("=")[0]) + r"\b", f"sluice {command[0]} has no {word}")

    def test_compose_environment(self):
        settings = self.run_sluice("config").stdout.decode()
        for service in (service for service in self.compose()["services"].values() if "build" in service):
            for name in service["environment"]:
                self.assertTrue(name.startswith("SLUICE_"))
                self.assertRegex(settings, rf"(?m)^\s*{name[len('SLUICE_'):].lower()}\b")

    def test_probes(self):
        """On Kubernetes the probe that ends a container does not ask Redis; readiness does. Compose's check is
        readiness."""
        parts = {part["kind"]: part["spec"] for part in yaml.safe_load_all(read("config", "kubernetes", "sluice.yaml"))}
        container = parts["Deployment"]["template"]["spec"]["containers"][0]
        probes = {name: probe["httpGet"] for name, probe in container.items() if name.endswith("Probe")}
        self.assertEqual(probes, {"startupProbe": {"path": "/healthz", "port": "http"}, "livenessProbe": {"path": "/healthz", "port": "http"},
                                  "readinessProbe": {"path": "/readyz", "port": "http"}})
        self.check_command(container["args"])
        labels = {"app": "sluice"}
        self.assertEqual([labels] * 4, [parts["Deployment"]["template"]["metadata"]["labels"], parts["Service"]["selector"],
                                        parts["PodDisruptionBudget"]["selector"]["matchLabels"],
                                        parts["NetworkPolicy"]["podSelector"]["matchLabels"]])
        environment = {variable["name"]: variable.get("value") for variable in container["env"]}
        self.assertLessEqual({name[len("SLUICE_"):].lower() for name in environment},
                             {line.split()[0] for line in self.run_sluice("config").stdout.decode().splitlines()})
        for service in (service for service in self.compose()["services"].values() if "build" in service):
            self.assertEqual(service["healthcheck"]["test"][2:4], ["workers", "check"])

    def start_redis_of_the_file(self):
        """Runs the file's shell command with its paths moved; returns the process and a client of its first user."""
        for role in ("producer", "worker", "operator"):
            if not os.path.exists(self.path(role + "_password")):
                self.write(role + "_password", role + "-secret\n")
        self.write("redis.conf", read("config", "redis.conf") + f"\nport 0\nunixsocket {self.path('s')}\n")
        service = self.compose()["services"]["redis"]
        script = service["command"][0].replace("$$", "$")
        for inside, here in (("/run/secrets", self.directory), ("/etc/sluice/redis.conf", self.path("redis.conf")),
                             ("/etc/sluice/mend-aof.sh", os.path.join(SOURCE, "config", "mend-aof.sh")), ("/data", self.directory),
                             ("/etc/sluice/make-users.sh", os.path.join(SOURCE, "config", "make-users.sh")),
                             ("/tmp/users.acl", self.path("users.acl"))):
            self.assertIn(inside, script)
            script = script.replace(inside, here)
        child = self.start_child([*service["entrypoint"], script])
        client = connect(self.path("s"), username="sluice-operator", password="operator-secret")
        self.wait_until(lambda: child.poll() is not None or client.ping(), "redis-server",
                        ignore=(redis.ConnectionError, redis.BusyLoadingError))
        return child, client

    def start_child(self, argv, environment=None):
        child = process.start(argv, env=process.clean_environment(environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.end, child)
        return child

    def test_redis_command_and_health_check(self):
        """Redis knows three users; a worker serves under its own. The file's health checks find Redis and that worker,
        and fail when they are gone."""
        services = self.compose()["services"]
        server, _ = self.start_redis_of_the_file()
        for options in ({}, {"password": "worker-secret"}, {"username": "sluice-worker", "password": "operator-secret"}):
            with self.assertRaises((redis.ResponseError, redis.AuthenticationError)):
                connect(self.path("s"), **options).ping()
        redis_check = services["redis"]["healthcheck"]["test"]
        self.assertEqual(redis_check[0], "CMD-SHELL")
        redis_check = redis_check[1].replace("$$", "$").replace("/run/secrets", self.directory).replace("redis-cli", f"redis-cli -s {self.path('s')}")
        self.assertEqual(subprocess.run(["sh", "-c", redis_check], check=False, timeout=60).returncode, 0)
        environment = {"SLUICE_REDIS_PASSWORD_FILE": self.path("worker_password")}
        address = f"--redis=redis+unix://sluice-worker@{self.path('s')}"
        serve = ["--model=" + self.make_model() if word.startswith("--model=") else address if word.startswith("--redis=") else word
                 for word in services["worker-1"]["command"]]
        check = [address if word.startswith("--redis=") else word for word in services["worker-1"]["healthcheck"]["test"][2:]]
        self.assertEqual(self.run_sluice(*check, environment=environment).returncode, 69)
        worker = self.start_child([BINARY, *serve, "--lease-ms", "500"], environment)
        self.wait_until(lambda: self.run_sluice(*check, environment=environment).returncode == 0, "a healthy worker")
        process.end(worker)
        self.wait_until(lambda: self.run_sluice(*check, environment=environment).returncode == 69, "an unhealthy one")
        process.end(server)
        self.assertNotEqual(subprocess.run(["sh", "-c", redis_check], check=False, timeout=60, stderr=subprocess.DEVNULL).returncode, 0)

    def test_redis_does_not_start_with_an_empty_password(self):
        for role in ("producer", "worker", "operator"):
            self.write(role + "_password", "\n")
            child, _ = self.start_redis_of_the_file()
            self.assertEqual(child.returncode, 78)
            self.write(role + "_password", role + "-secret\n")

    def test_redis_command_after_a_crash(self):
        """Redis starts after a crash in the middle of a transaction, and writes that it then confirms survive the next
        crash."""
        child, client = self.start_redis_of_the_file()
        names = []
        for _ in range(3):
            producer = connect(self.path("s"), username="sluice-producer", password="producer-secret")
            names.append(producer.xadd("sluice:{default}:requests", {"text": "x"}))
            process.end(child)
            with open(append_only(self.directory), "ab") as file:
                file.write(command("MULTI") + command("DEL", "sluice:{default}:requests")[:-1])
            child, client = self.start_redis_of_the_file()
        self.assertEqual(client.xlen("sluice:{default}:requests"), len(names))

    def test_redis_configuration(self):
        """A real Redis starts with the configuration in the file, and has the durability that it promises."""
        path = os.path.join(SOURCE, "config", "redis.conf")
        child = process.start(["redis-server", path, "--dir", self.directory, "--port", "0", "--unixsocket", self.path("conf.sock")],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            client = connect(self.path("conf.sock"))
            self.wait_until(client.ping, "redis-server", ignore=(redis.ConnectionError,))
            settings = client.config_get("*")
            self.assertEqual(settings["maxmemory-policy"], "noeviction")
            self.assertEqual((settings["appendonly"], settings["appendfsync"]), ("yes", "always"))
            self.assertEqual(settings["aof-load-truncated"], "no")
            self.assertEqual(settings["maxmemory"], str(1 << 30))
        finally:
            process.end(child)

    def test_dockerfile(self):
        """The files that it copies exist, the packages that it installs are in Debian's archive, and it does not run as
        root."""
        text = read("Dockerfile").replace("\\\n", " ")
        stages = re.findall(r"^FROM (\S+)", text, re.M)
        self.assertEqual(stages, ["debian:12-slim", "debian:12-slim"])
        for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M):
            for source in line.split()[:-1]:
                self.assertTrue(os.path.exists(os.path.join(SOURCE, source)), source)
        packages = " ".join(re.findall(r"--no-install-recommends\s+([^&]*)", text)).split()
        self.assertGreater(len(packages), 10)
        known = subprocess.run(["apt-cache", "show", "--no-all-versions", *packages], capture_output=True, check=False, timeout=60)
        found = set(re.findall(r"^Package: (\S+)", known.stdout.decode(), re.M))
        self.assertEqual(set(packages) - found, set())
        self.assertLess(text.index("USER sluice"), text.index("ENTRYPOINT"))
        command = re.search(r"^CMD (\[.*\])", text, re.M)[1]
        self.check_command(yaml.safe_load(command))

    def stages(self):
        """Returns the packages of the build stage, those that it installs for CUDA, and those of the final stage."""
        text = read("Dockerfile").replace("\\\n", " ")
        return [set(found.split()) for found in re.findall(r"--no-install-recommends\s+([^&]*)", text)]

    def owner(self, path):
        """Returns the Debian package that owns a file, under either spelling of a merged /usr."""
        for name in (path, path.replace("/usr/lib", "/lib", 1), "/usr" + path):
            found = subprocess.run(["dpkg", "-S", name], capture_output=True, check=False, timeout=60).stdout.decode()
            if found:
                return found.split(":")[0]
        self.fail(f"no package owns {path}")

    def test_dockerfile_installs_what_the_build_looks_for(self):
        modules = re.findall(r"pkg_check_modules\(\S+ REQUIRED IMPORTED_TARGET (\S+)\)", read("cmake", "Dependencies.cmake"))
        self.assertGreater(len(modules), 2)
        for module in modules:
            folder = subprocess.run(["pkg-config", "--variable=pcfiledir", module], capture_output=True, check=True, timeout=60)
            self.assertIn(self.owner(f"{folder.stdout.decode().strip()}/{module}.pc"), self.stages()[0], module)

    def test_dockerfile_installs_what_the_program_needs(self):
        """Every shared library of ours comes from a package of the final stage; libc and the sanitizers aside."""
        listing = subprocess.run(["ldd", BINARY], capture_output=True, check=True, timeout=60).stdout.decode()
        direct = subprocess.run(["readelf", "-d", BINARY], capture_output=True, check=True, timeout=60).stdout.decode()
        for name in re.findall(r"NEEDED.*\[(.*)\]", direct):
            if not re.match(r"lib(c|m|asan|tsan|ubsan|gcc_s)\.so|ld-linux", name):
                path = re.search(rf"{re.escape(name)} => (\S+)", listing)[1]
                self.assertIn(self.owner(os.path.realpath(path)), self.stages()[-1], name)

    def test_model_paths(self):
        """The model that the files name is one that the repository ships."""
        named = re.findall(r"/share/sluice/models/([A-Za-z0-9._-]+)", read("Dockerfile") + read("docker-compose.yml"))
        self.assertGreaterEqual(len(named), 2)
        for name in named:
            self.assertTrue(os.path.isfile(os.path.join(SOURCE, "config", "models", name, "config.json")), name)

    def test_dockerfile_copies_what_the_build_needs(self):
        """Runs the steps of the build stage on a copy of its inputs, with an empty file in place of the compiled
        program."""
        text = read("Dockerfile").replace("\\\n", " ")
        copy = self.path("src")
        os.mkdir(copy)
        for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M):
            *sources, target = line.split()
            for source in sources:
                place = os.path.join(copy, target if target != "./" else source)
                origin = os.path.join(SOURCE, source)
                shutil.copytree(origin, place) if os.path.isdir(origin) else shutil.copy(origin, place)
        configure = put_in(re.search(r"RUN (cmake --preset .*?) &&", text)[1], "$CUDA", re.search(r"(?m)^ARG CUDA=(.*)", text)[1])
        self.assertIn("\nARG SLUICE_COMMIT\n", text)
        for commit, version in (("", "0.1.0"), ("1795252518-0123456789abcdef", "0.1.0+git202611210915.01234567")):
            subprocess.run(put_in(configure, "$SLUICE_COMMIT", commit).split(), cwd=copy, check=True, capture_output=True, timeout=120)
            subprocess.run(["cmake", "--build", "build/release", "--target", "version"], cwd=copy, check=True, capture_output=True, timeout=120)
            with open(os.path.join(copy, "build", "release", "generated", "version.c"), encoding="utf-8") as file:
                self.assertIn(f'"{version}"', file.read())
        with open(os.path.join(copy, "build", "release", "sluice"), "wb"):
            pass
        subprocess.run(["cmake", "--install", "build/release"], cwd=copy, check=True, capture_output=True, timeout=60,
                       env={**os.environ, "DESTDIR": self.path("out")})
        self.assertTrue(os.path.isfile(self.path("out", "usr", "local", "bin", "sluice")))
        self.assertTrue(os.path.isfile(self.path("out", "usr", "local", "share", "sluice", "sluice.json")))

    def test_presets_in_dockerfile(self):
        for preset in re.findall(r"--preset (\S+)", read("Dockerfile")):
            self.assertIn(f'"name": "{preset}"', read("CMakePresets.json"))
