"""make install: where files are installed, and that they work from there. bash and make are Debian's own."""

# ctest-once
# ctest-cost: 5

import configparser
import os
import re
import subprocess
import sys

import process
import redis
from case import SluiceCase
from daemon import BINARY, SOURCE, sluice
from redis_server import connect

sys.path[:0] = [os.path.join(SOURCE, "tests", "docs"), os.path.join(SOURCE, "tests", "package")]
from blocks import only_block, put_in  # noqa: E402
from paths import leads_nowhere  # noqa: E402

BUILD = os.path.dirname(BINARY)
PREFIX = "/opt/sluice"  # neither the default prefix nor the one configured for the build


def install(destination):
    return subprocess.run(["make", "-C", SOURCE, "install", f"BUILD={BUILD}", f"DESTDIR={destination}", f"PREFIX={PREFIX}"],
                          capture_output=True, text=True, timeout=300, check=False, env=process.clean_environment())


class Install(SluiceCase):
    def setUp(self):
        super().setUp()
        result = install(self.path("root"))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.output = result.stdout
        self.program = self.installed("bin", "sluice")

    def installed(self, *names):
        return self.path("root" + PREFIX, *names)

    def read(self, *names):
        with open(self.installed(*names), encoding="utf-8") as file:
            return file.read()

    def test_reuses_the_build(self):
        self.assertNotRegex(self.output, r"Building (?!C object .*/version\.c)")  # a later commit changes the version alone
        with open(BINARY, "rb") as built, open(self.program, "rb") as installed:
            self.assertTrue(built.read() == installed.read(), "another program than the one that was built and tested")

    def test_everything_is_there(self):
        found = {os.path.relpath(os.path.join(folder, name), self.path("root" + PREFIX))
                 for folder, _, names in os.walk(self.path("root")) for name in names}
        wanted = {"bin/sluice", "lib/systemd/system/sluice.service", "lib/systemd/system/sluice@.service",
                  "lib/systemd/system/sluice-gateway.service", "share/bash-completion/completions/sluice",
                  "share/man/man1/sluice.1", "share/zsh/site-functions/_sluice",
                  *(f"share/sluice/{name}" for name in ("sluice.json", "redis.conf", "mend-aof.sh", "make-users.sh")),
                  *(f"share/doc/sluice/{name}" for name in ("LICENSE", "README.md", "SECURITY.md"))}
        for folder, place in (("config/acl", "share/sluice/acl"), ("config/models", "share/sluice/models"),
                              ("config/monitoring", "share/sluice/monitoring"), ("tools/clients", "share/sluice/clients"), ("config/kubernetes", "share/sluice/kubernetes"), ("docs", "share/doc/sluice/docs")):
            wanted |= {os.path.join(place, os.path.relpath(os.path.join(at, name), os.path.join(SOURCE, folder)))
                       for at, _, names in os.walk(os.path.join(SOURCE, folder)) for name in names if not name.endswith(".pyc")}
        self.assertEqual(found, wanted)
        for name in ("bin/sluice", "share/sluice/mend-aof.sh", "share/sluice/make-users.sh"):
            self.assertTrue(os.access(self.installed(name), os.X_OK), name)

    def test_paths_lead_somewhere(self):
        """Checks paths in pages, comments, alerts and units. tests/package/deb.py checks those of the package."""
        wrong, count = leads_nowhere(self.path("root"), PREFIX)
        self.assertEqual(wrong, [])
        self.assertGreater(count, 200)

    def test_works_from_there(self):
        """With the installed redis.conf, users, program and model, and nothing from the source tree, a request is
        answered."""
        shown = sluice("config", binary=self.program).stdout.decode()
        model = re.search(r'(?m)^model +"(.*)" +# default$', shown)[1]
        self.assertEqual(os.path.realpath(model), os.path.realpath(self.installed("share", "sluice", "models", "sluice-mini-en")))
        for role in ("producer", "worker", "operator"):
            self.write(role + "_password", role + "-secret\n")
        users = subprocess.run([self.installed("share", "sluice", "make-users.sh"), self.directory], capture_output=True, check=True).stdout
        subprocess.run([self.installed("share", "sluice", "mend-aof.sh"), self.directory], capture_output=True, check=True)
        server = process.start(["redis-server", self.installed("share", "sluice", "redis.conf"), "--dir", self.directory, "--port", "0",
                                "--unixsocket", self.path("s"), "--aclfile", self.write("users.acl", users)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.end, server)
        client = connect(self.path("s"), username="sluice-operator", password="operator-secret")
        self.wait_until(client.ping, "redis-server", ignore=(redis.ConnectionError, redis.BusyLoadingError))

        def login(role):
            return {"SLUICE_REDIS": f"redis+unix://sluice-{role}@{self.path('s')}", "SLUICE_REDIS_PASSWORD_FILE": self.path(role + "_password")}
        worker = process.start([self.program, "serve"], env=process.clean_environment(login("worker")),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.end, worker)
        reply = sluice("submit", "--wait", "hello world", binary=self.program, environment=login("producer"))
        self.assertEqual(reply.returncode, 0, reply.stderr)
        self.assertIn(b'"dim":192', reply.stdout)
        self.assertEqual(sluice("workers", "check", binary=self.program, environment=login("operator")).returncode, 0)

    def test_two_workers_in_production(self):
        """Runs the commands and files of that section of docs/operations.md, in folders of the test and with a unix
        socket; systemd and file ownership are left out."""
        with open(os.path.join(SOURCE, "docs", "operations.md"), encoding="utf-8") as file:
            whole = file.read()
        page = whole[whole.index("## Two workers in production"):whole.index("## Start, stop")]

        def block(mark, page=page):
            code = only_block(page, mark).replace("/usr/local/", self.installed("")).replace("/etc/", self.path("etc/"))
            return code.replace("/var/lib/redis", self.directory).replace("redis://sluice", "redis+unix://sluice").replace(
                "10.0.0.5:6379", self.path("s"))

        def run(code):
            environment = process.clean_environment({"SLUICE_CONFIG": self.path("etc/sluice/sluice.json")})
            environment["PATH"] = self.installed("bin") + ":" + environment["PATH"]
            result = subprocess.run(["sh", "-ec", code], capture_output=True, text=True, timeout=60, check=False, env=environment)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            return result.stdout

        def start(argv, **environment):
            child = process.start(argv, env=process.clean_environment(environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(process.end, child)
        os.makedirs(self.path("etc/redis"))
        run(put_in(block("make-users.sh"), "-o redis ", ""))
        self.write("etc/sluice/sluice.json", block('"precision"'))
        unit = block("ExecStartPre=")
        run(re.search("ExecStartPre=[+]/usr/sbin/runuser -u redis -- (.*)", unit)[1])
        settings = put_in(block("aclfile"), "port 6379", f"port 0\nunixsocket {self.path('s')}")
        settings = re.sub("(?m)^(pidfile|logfile) /.*/", rf"\1 {self.directory}/", settings)
        start(["redis-server", self.write("etc/redis/redis.conf", settings)])
        configured = block("/etc/sluice/environment")
        self.assertIn("\nsystemctl restart sluice\n", configured)  # the package has started it, with another Redis
        run(re.sub("(?m)^systemctl .*$", "", configured))
        with open(self.path("etc/sluice/environment"), encoding="utf-8") as file:
            password = file.read().removeprefix("SLUICE_REDIS_PASSWORD=").rstrip("\n")
        for _ in range(2):
            start([self.program, "serve"], SLUICE_CONFIG=self.path("etc/sluice/sluice.json"), SLUICE_REDIS_PASSWORD=password)
        look = block("sluice doctor")
        login = "\n".join(line for line in look.splitlines() if line.startswith("export ") and "operator" in line)
        self.wait_until(lambda: run(f"{login}; sluice workers list || true").count("alive=yes") == 2, "both workers")
        text = run(look)
        self.assertIn('"dim":192', text)
        self.assertEqual(text.count(" state=running "), 2)
        self.assertIn("0 failed", text)
        upgrade = put_in(put_in(block("acl load", whole), "apt-get install", "echo"), "-o redis ", "").replace(
            "redis-cli", f"redis-cli -s {self.path('s')} --user admin -a \"$(cat {self.path('etc/sluice/secrets/admin_password')})\"")
        self.assertIn("OK\n", run(upgrade))
        self.assertEqual(run(f"{login}; sluice workers list").count("alive=yes"), 2, "the new users are not those of before")

    def unit(self, name):
        unit = configparser.ConfigParser(interpolation=None, strict=False)  # a unit may name a setting twice
        unit.optionxform = str
        unit.read_string(self.read("lib", "systemd", "system", name))
        return unit

    def test_unit(self):
        unit = self.unit("sluice.service")
        service = unit["Service"]
        self.assertEqual(service["ExecStart"], f"{PREFIX}/bin/sluice serve")
        page = unit["Unit"]["Documentation"].removeprefix("file://")
        self.assertTrue(os.path.exists(self.path("root" + page)), page)
        settings = {line.split()[0]: line.split()[1] for line in sluice("config", binary=self.program).stdout.decode().splitlines()}
        self.assertGreater(int(service["TimeoutStopSec"]) * 1000, int(settings["shutdown_timeout_ms"]))
        self.assertIn(service["Environment"].split("=")[0].removeprefix("SLUICE_").lower(), settings)
        with open(os.path.join(SOURCE, "docs", "operations.md"), encoding="utf-8") as file:
            rows = re.findall(r"(?m)^\| ([\d, ]+) \| .* \| (no|yes[^|]*|as you wanted)[^|]*\|$", file.read())
        never = {code for codes, again in rows if again == "no" for code in codes.split(", ")}
        self.assertIn("78", never)
        self.assertEqual(set(service["RestartPreventExitStatus"].split()), never)
        self.assertEqual((service["Type"], service["TimeoutStartSec"]), ("notify", "infinity"))
        self.assertGreater(int(service["WatchdogSec"]), 10)  # for loaded machines; `sluice live` reports a hang as late
        several = self.read("lib", "systemd", "system", "sluice@.service")
        self.assertIn(f"\nExecStart={PREFIX}/bin/sluice serve --config /etc/sluice/%i.json\n", several)
        self.assertIn("\nEnvironmentFile=-/etc/sluice/%i.environment\n", several)
        for setting in ("CacheDirectory", "User"):  # with several users, the cache would belong to the one started last
            self.assertIn(f"\n{setting}={service.get(setting)}\n", several)

    def test_unit_of_the_gateway(self):
        """It starts with the settings of its unit, and may do nothing that the daemon may not."""
        unit, daemon = self.unit("sluice-gateway.service"), self.unit("sluice.service")["Service"]
        service = unit["Service"]
        self.assertEqual(service["ExecStart"], f"{PREFIX}/bin/sluice gateway")
        page = unit["Unit"]["Documentation"].removeprefix("file://")
        self.assertTrue(os.path.exists(self.path("root" + page)), page)
        own = {"ExecStart", "Environment", "EnvironmentFile", "StateDirectory", "StateDirectoryMode"}
        of_daemons = {"ExecStart", "ExecReload", "Environment", "EnvironmentFile", "CacheDirectory", "User", "DeviceAllow",
                      "TimeoutStartSec", "WatchdogSec", "WatchdogSignal"}
        shared = lambda settings, without: {name: value for name, value in settings.items() if name not in without}
        self.assertEqual(shared(service, own), shared(daemon, of_daemons))
        with open(os.path.join(SOURCE, "config", "sluice-gateway.service.in"), encoding="utf-8") as file:
            restrictions = re.findall("(?m)^SystemCallFilter=.*", file.read())
        self.assertEqual(restrictions, ["SystemCallFilter=@system-service", "SystemCallFilter=~@privileged"])
        environment = dict(word.split("=", 1) for word in service["Environment"].replace("%S", self.path("state")).split())
        self.assertEqual(environment["SLUICE_DATA"], self.path("state") + "/" + service["StateDirectory"])
        shown = sluice("config", binary=self.program, environment=environment).stdout.decode()
        for name, value in environment.items():
            self.assertRegex(shown, rf'(?m)^{name.removeprefix("SLUICE_").lower()} +"{re.escape(value)}" ')

    def test_manual_page(self):
        """It has the content of --help: each command, its explanation, and each option with its line of help."""
        page = self.installed("share", "man", "man1", "sluice.1")
        checked = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8", page], capture_output=True, text=True, check=True)
        self.assertEqual(checked.stderr, "")
        plain = subprocess.run(["groff", "-man", "-Tascii", "-P-cbou", "-rHY=0", "-rLL=1000n", page], capture_output=True, text=True, check=True)
        words = lambda lines: " ".join(lines.split()).replace("`", "'")
        shown = words(plain.stdout)
        commands = re.findall(r"(?m)^  ([a-z][a-z0-9 ]*[a-z0-9]) +[A-Z]", sluice("--help").stdout.decode())
        self.assertGreater(len(commands), 20)
        for command in commands:
            usage, *paragraphs = sluice(*command.split(), "--help").stdout.decode().removeprefix("usage: ").split("\n\n")
            for paragraph in [usage, *paragraphs]:
                with self.subTest(command=command):
                    self.assertIn(words(paragraph), shown)

    # completion

    def complete(self, *lines):
        """Returns the completions that bash offers at the end of each of these lists of words."""
        script = ['source "$1"', "PATH=$2:$PATH", "try() { COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)); COMPREPLY=(); _sluice; echo \"${COMPREPLY[*]}\"; }"]
        script += ["try sluice " + " ".join(f"'{word}'" for word in line) for line in lines]
        result = subprocess.run(["bash", "-uc", "\n".join(script), "bash", self.installed("share", "bash-completion", "completions", "sluice"),
                                 self.installed("bin")], capture_output=True, text=True, timeout=60, check=False, env=process.clean_environment())
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return [sorted(offered.split()) for offered in result.stdout.splitlines()]

    def test_completion_knows_what_the_help_lists(self):
        commands = re.findall(r"(?m)^  ([a-z][a-z0-9 ]*[a-z0-9]) +[A-Z]", sluice("--help").stdout.decode())
        self.assertGreater(len(commands), 20)
        offered = self.complete([""], ["bench", ""], *([*command.split(), "--"] for command in commands))
        self.assertEqual(offered[0], sorted({command.split()[0] for command in commands}))
        self.assertEqual(offered[1], sorted(command.split()[1] for command in commands if command.startswith("bench ")))
        for command, options in zip(commands, offered[2:]):
            rows = re.findall(r"(?m)^  (--.*)$", sluice(*command.split(), "--help").stdout.decode())
            wanted = {option for row in rows for option in re.match(r"(--[a-z0-9-]+)(?:, (--no-[a-z0-9-]+))?", row).groups() if option}
            self.assertEqual(options, sorted(wanted | {"--help"}), command)
        self.assertIn("--lease-ms", offered[2 + commands.index("serve")])

    LINES = (["st"], ["workers", ""], ["workers", "dr"], ["workers", "list", ""], ["doctor", "--role", ""], ["doctor", "--role", "=", "w"],
             ["doctor", "--role", "="], ["serve", "--model", ""], ["stats", "--json", "--q"], ["nonsense", "--"], ["dead", "--all", ""])

    def test_completion_of_words(self):
        words = ["check", "drain", "list", "quiet", "resume", "stop"]
        roles = ["auto", "operator", "producer", "worker"]
        self.assertEqual(self.complete(*self.LINES), [["stats"], words, ["drain"], [], roles, ["worker"], roles, [], ["--queue"], [], []])

    def test_completion_in_zsh(self):
        """The words are the same as in bash. The test imitates zsh's own completion, which keeps words that start like
        the last one."""
        lines = [line for line in self.LINES if "=" not in line]
        script = ["compdef() { : }; _default() { : }", "compadd() { while [[ $1 != - ]]; do shift; done; shift; print -rn -- ${(M)@:#${words[CURRENT]}*} '' }",
                  "fpath=($1 $fpath) path=($2 $path)", "autoload -Uz _sluice",
                  "try() { words=(\"$@\") CURRENT=$#; if [[ -z $begun ]]; then begun=1; _sluice; else _bash_complete -o default -F _sluice; fi; print }"]
        script += ["try sluice " + " ".join(f"'{word}'" for word in line) for line in lines]
        result = subprocess.run(["zsh", "-fc", "\n".join(script), "zsh", self.installed("share", "zsh", "site-functions"), self.installed("bin")],
                                capture_output=True, text=True, timeout=60, check=False, env=process.clean_environment())
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual([sorted(offered.split()) for offered in result.stdout.splitlines()], self.complete(*lines))
