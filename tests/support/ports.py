"""TCP ports for the servers of a test."""

import random
import socket

_reserved = []  # sockets; the process keeps them


def _first_of_the_kernel():
    """The lowest port that the kernel gives to connections and to whoever binds port 0."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        return int(file.read().split()[0])


def free_port():
    """A port of this process for as long as it lives: its server may bind it later, end, and bind it again. No other test
    gets the same one, because an abstract socket with the port in its name can be bound only once."""
    end = max(_first_of_the_kernel(), 20000)
    for _ in range(1000):
        port, mark = random.randrange(10000, end), socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0sluice-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
            _reserved.append(mark)
            return port
        except OSError:
            mark.close()
    raise AssertionError("no free TCP port")
