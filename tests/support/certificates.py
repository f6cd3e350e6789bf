"""Certificates for tests, made with the openssl command: of authorities, servers and clients, good ones and bad ones."""

import os
import subprocess
import unittest


def _openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


class Certificates:
    """PEM files in one directory: NAME.crt and NAME.key."""

    def __init__(self, directory):
        if os.environ.get("SLUICE_TEST_TLS") == "no":
            raise unittest.SkipTest("on_server.sh found that this server was built without TLS")
        self.directory = directory
        os.makedirs(directory, exist_ok=True)

    def crt(self, name):
        return os.path.join(self.directory, name + ".crt")

    def key(self, name):
        return os.path.join(self.directory, name + ".key")

    def self_signed(self, name, hosts=(), authority=False):
        """A certificate signed by itself; that of an authority may sign others."""
        extensions = ["-addext", f"basicConstraints=critical,CA:{'TRUE' if authority else 'FALSE'}"]
        if hosts:
            extensions += ["-addext", f"subjectAltName={self._names(hosts)}"]
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                 "-keyout", self.key(name), "-out", self.crt(name), "-subj", f"/CN={name}", *extensions)
        return self

    def authority(self, name):
        return self.self_signed(name, authority=True)

    def issue(self, name, authority, hosts=(), days=2):
        """A certificate for these hosts, signed by `authority`; with negative `days` it has expired already."""
        request, extensions = os.path.join(self.directory, name + ".csr"), os.path.join(self.directory, name + ".ext")
        with open(extensions, "w", encoding="ascii") as file:
            file.write(f"subjectAltName={self._names(hosts)}\n" if hosts else "basicConstraints=CA:FALSE\n")
        _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
                 "-keyout", self.key(name), "-out", request)
        _openssl("x509", "-req", "-in", request, "-CA", self.crt(authority), "-CAkey", self.key(authority), "-CAcreateserial",
                 "-days", str(days), "-extfile", extensions, "-out", self.crt(name))
        return self

    def lock_key(self, name, locked):
        """Writes a copy of a key that needs a password."""
        _openssl("pkey", "-in", self.key(name), "-aes256", "-passout", "pass:word", "-out", self.key(locked))

    @staticmethod
    def _names(hosts):
        return ",".join(("IP:" if host[0].isdigit() or ":" in host else "DNS:") + host for host in hosts)
