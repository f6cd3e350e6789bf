"""A master, its replicas and the sentinels that watch them: real processes on loopback ports, and a way to find the master as
any client would."""

import os

import redis

import process
from ports import free_port
from redis_server import RedisServer
from waiting import wait_until


# A sentinel normally looks at each server every ten seconds: here it must notice events at once, and soon give up an election
# without a result. While the master is down it asks the replicas for INFO once a second, whatever INFO-PERIOD says, and
# promotes none whose last answer is older than five PING-PERIODs: these must be more than a second. The last two settings say
# how long it mistrusts itself after the machine was slow.
BRISK = {"INFO-PERIOD": 100, "PING-PERIOD": 300, "ASK-PERIOD": 100, "ELECTION-TIMEOUT": 1000, "SLAVE-RECONF-TIMEOUT": 1000,
         "TILT-TRIGGER": 2000, "TILT-PERIOD": 1000}


def tls_settings(tls):
    """The settings of a server or a sentinel for its certificate, key and authorities."""
    return [("tls-cert-file", tls[0]), ("tls-key-file", tls[1]), ("tls-ca-cert-file", tls[2]), ("tls-auth-clients", "no"),
            ("tls-replication", "yes")]


class TcpRedis(RedisServer):
    """A server that keeps its port over restarts; replicas and sentinels find each other by TCP."""

    def __init__(self, directory, name, aof="no", password=None, options=(), tls=None):
        """`tls`: certificate, key and authorities; then there is no plain port."""
        options = ["--repl-diskless-sync-delay", "0", *options]
        if password:
            options += ["--requirepass", password, "--masterauth", password]
        if tls:
            for flag, value in tls_settings(tls):
                options += ["--" + flag, value]
        super().__init__(directory, name, aof, options)
        self.password = password
        self.port = self.start_on_tcp("--tls-port" if tls else "--port")

    def follow(self, master):
        """Becomes a replica of `master`, or a master again (None); returns when the link is up."""
        client = self.client()
        client.execute_command("REPLICAOF", *(("NO", "ONE") if master is None else ("127.0.0.1", master.port)))
        if master is not None:
            wait_until(lambda: client.info("replication")["master_link_status"] == "up", "the replica to follow", timeout=30)
        return self

    def role(self):
        return self.client().execute_command("ROLE")[0].decode()


class Sentinel:
    def __init__(self, directory, number, name, master, quorum, password=None, tls=None, more=None):
        """`more`: lines for its configuration in place of the login for the server."""
        self.more = more
        self.directory = os.path.join(directory, f"sentinel-{number}")
        os.mkdir(self.directory)
        self.log = os.path.join(self.directory, "sentinel.log")
        self.name, self.password, self.tls = name, password, tls
        self.port = free_port()
        self._configure(master, quorum)
        self.start()
        wait_until(self._answers, lambda: f"a sentinel; its log:\n{self.read_log()}", timeout=30, ignore=(redis.ConnectionError,))
        self.tune(**BRISK)

    def _configure(self, master, quorum):
        lines = [f"port {0 if self.tls else self.port}", "bind 127.0.0.1", f"dir {self.directory}", f"logfile {self.log}", "daemonize no",
                 f"sentinel monitor {self.name} 127.0.0.1 {master.port} {quorum}",
                 f"sentinel down-after-milliseconds {self.name} 500", f"sentinel failover-timeout {self.name} 3000"]
        if self.tls:
            lines += [f"tls-port {self.port}", *(" ".join(setting) for setting in tls_settings(self.tls))]
        if self.password:
            lines += [f"requirepass {self.password}", f"sentinel sentinel-pass {self.password}"]
        if self.more is not None:
            lines += self.more
        elif master.password:
            lines.append(f"sentinel auth-pass {self.name} {master.password}")
        self.path = os.path.join(self.directory, "sentinel.conf")
        with open(self.path, "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")

    def start(self):
        self.process = process.start(["redis-server", self.path, "--sentinel"], env=process.clean_environment())
        return self

    def tune(self, **periods):
        """Sets periods in ms, by the names of SENTINEL DEBUG."""
        self.client().execute_command("SENTINEL", "DEBUG", *(word for pair in periods.items() for word in pair))

    def _answers(self):
        assert self.process.poll() is None, f"a sentinel ended with {self.process.returncode}:\n{self.read_log()}"
        return self.client().ping()

    def client(self):
        encrypted = {"ssl": True, "ssl_ca_certs": self.tls[2]} if self.tls else {}
        return redis.Redis(host="127.0.0.1", port=self.port, password=self.password, decode_responses=True, **encrypted)

    def master_port(self):
        return int(self.client().execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)[1])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def cleanup(self):
        process.end(self.process)

    def read_log(self):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""


class Group:
    """Servers of which one is the master, watched by sentinels."""

    NAME = "mymaster"

    def __init__(self, directory, children, replicas=2, sentinels=3, password=None, server_password=None, tls=None, servers=(), more=None):
        """`servers`: in place of new ones, servers that run, the master first. `more`: as Sentinel's."""
        self.servers = list(servers)
        for number in range(0 if servers else 1 + replicas):
            self.servers.append(TcpRedis(directory, f"r{number}", password=server_password, tls=tls))
        children += self.servers
        for replica in self.servers[1:]:
            replica.follow(self.servers[0])
        self.sentinels = []
        for number in range(sentinels):
            self.sentinels.append(Sentinel(directory, number, self.NAME, self.servers[0], 1 + sentinels // 2, password, tls, more))
            children.append(self.sentinels[-1])
        self._greet_every(100)
        wait_until(self._complete, "the sentinels to know all of it", timeout=30)
        self._greet_every(2000)

    def _greet_every(self, ms):
        """Sets the period of greetings: how fast sentinels find each other, and how long (four greetings) they watch a server
        in the wrong role before they send it back. During a failover it must be the usual two seconds, because then the server
        in the wrong role is the new master."""
        for sentinel in self.sentinels:
            if sentinel.process.poll() is None:
                sentinel.tune(**{"PUBLISH-PERIOD": ms})

    def _complete(self):
        for sentinel in self.sentinels:
            seen = sentinel.client().sentinel_master(self.NAME)
            if seen["num-slaves"] != len(self.servers) - 1 or seen["num-other-sentinels"] != len(self.sentinels) - 1:
                return False
        return True

    def url(self, scheme="redis+sentinel", login=""):
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"{scheme}://{login}{places}/{self.NAME}"

    def seeds(self):
        return "redis://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers) + "/0"

    def by_port(self, port):
        return next(server for server in self.servers if server.port == port)

    def master(self):
        """The server that a majority of the sentinels calls the master and that is one."""
        named = [sentinel.master_port() for sentinel in self.sentinels if sentinel.process.poll() is None]
        port = max(set(named), key=named.count)
        server = self.by_port(port)
        return server if server.process.poll() is None and server.role() == "master" else None

    def wait_master(self, other_than=None, timeout=60):
        def settled():
            master = self.master()
            return master if master is not other_than else None
        return wait_until(settled, "a new master", timeout=timeout, ignore=(redis.ConnectionError, redis.ResponseError))

    def fail_over(self):
        """Orders a failover and returns the new master. A sentinel gives up when it has not heard from the replica for a few
        hundred ms, as on a busy machine: then the order is repeated."""
        old, sentinel = self.wait_master(), self.sentinels[0]

        def moved():
            if sentinel.master_port() == old.port:
                try:
                    sentinel.client().execute_command("SENTINEL", "FAILOVER", self.NAME)
                except redis.ResponseError:  # one is under way, or no replica is good enough just now
                    return None
            master = self.master()
            return master if master is not old else None
        return wait_until(moved, "a failover", timeout=60, ignore=(redis.ConnectionError, redis.ResponseError))

    def wait_replicas(self, timeout=60):
        """Waits until every running server follows the master."""
        def agreed():
            master = self.master()
            return master and all(sentinel.master_port() == master.port for sentinel in self.sentinels
                                  if sentinel.process.poll() is None)

        def followed():
            master = self.master()
            return master and master.client().info("replication")["connected_slaves"] == \
                sum(server.process.poll() is None for server in self.servers) - 1

        lost = (redis.ConnectionError, redis.ResponseError)
        wait_until(agreed, "the sentinels to agree", timeout=timeout, ignore=lost)
        self._greet_every(100)
        wait_until(followed, "the replicas to follow", timeout=timeout, ignore=lost)
        self._greet_every(2000)
