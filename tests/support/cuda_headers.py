"""CUDA's headers without a toolkit, for the host tests of the kernels and of the CUDA engine.

usage: cuda_headers.py DIRECTORY    (makes it once; later calls, and calls at the same time, find it ready)

NVIDIA publishes the toolkit in parts as Python wheels. Those are large (cuBLAS: 350 MB), their headers are not: so only
the headers are read out of them, by HTTP range requests into the zip files. Each wheel's headers must have the hash
that is written here. The version is the oldest that Sluice builds with (12.4); where a toolkit is installed its newer
headers are used instead, so that both ends are compiled somewhere.
"""

import fcntl
import hashlib
import io
import os
import re
import shutil
import sys
import urllib.request
import zipfile

HOST = "https://files.pythonhosted.org/packages/"
ATTEMPTS = 3
BLOCK_BYTES = 256 * 1024

# The wheel's address, which of its files are wanted, and the hash of those (see digest()).
WHEELS = [
    (
        "ea/27/1795d86fe88ef397885f2e580ac37628ed058a92ed2c39dc8eac3adf0619/"
        "nvidia_cuda_runtime_cu12-12.4.127-py3-none-manylinux2014_x86_64.whl",
        r"nvidia/cuda_runtime/include/([a-z0-9_A-Z]+\.(?:h|hpp))",
        "278b71e6cc93cd3415e4bd5c2569d000784fbfd75ef120b01f33eb00c83a45c0",
    ),
    (
        "54/5c/c2f2592f3a5a041d546501cdcfab0f19ccbd31714de238f381a6e302a783/"
        "nvidia_cuda_nvcc_cu12-12.4.131-py3-none-manylinux2014_x86_64.whl",
        r"nvidia/cuda_nvcc/include/(crt/[a-z0-9_A-Z]+\.(?:h|hpp))",
        "b0f9add26d83ba1431c41b38fa5176a4e7b93781af4657db5b142873265ed83a",
    ),
    (
        "7f/62/6da9278c0d06e9ed48520d0ac23e300cc209f8cb4fdc854ef2e133cc2aa0/"
        "nvidia_cuda_cccl_cu12-12.4.127.post1-py3-none-manylinux2014_x86_64.whl",
        r"nvidia/cuda_cccl/include/(nv/(?:detail/)?[a-z_]+)",
        "84002a317678bd9798672158b31cce1b64b776315ec7ce50a04f31988272e1bc",
    ),
    (
        "ae/71/1c91302526c45ab494c23f61c7a84aa568b8c1f9d196efa5993957faf906/"
        "nvidia_cublas_cu12-12.4.5.8-py3-none-manylinux2014_x86_64.whl",
        r"nvidia/cublas/include/([a-z0-9_A-Z]+\.h)",
        "ce827d96e4c621bd2412d04ab47c5bd3d7c5636d43df6109776e1478321f9b7a",
    ),
]


class Remote(io.RawIOBase):
    """A file on a web server, read block by block."""

    def __init__(self, url):
        self.url, self.at, self.blocks = url, 0, {}
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=60) as reply:
            self.size = int(reply.headers["Content-Length"])

    def block(self, number):
        if number not in self.blocks:
            first = number * BLOCK_BYTES
            last = min(first + BLOCK_BYTES, self.size) - 1
            request = urllib.request.Request(self.url, headers={"Range": f"bytes={first}-{last}"})
            with urllib.request.urlopen(request, timeout=60) as reply:
                if reply.status != 206:
                    raise OSError(f"{self.url}: the server sends no part of a file")
                self.blocks[number] = reply.read()
        return self.blocks[number]

    def seekable(self):
        return True

    def readable(self):
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def tell(self):
        return self.at

    def readinto(self, to):
        if self.at >= self.size:
            return 0
        block = self.block(self.at // BLOCK_BYTES)
        part = block[self.at % BLOCK_BYTES :][: len(to)]
        to[: len(part)] = part
        self.at += len(part)
        return len(part)


def headers_of(path, pattern):
    """The wanted files of a wheel, by the names that they are included with."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            wheel = zipfile.ZipFile(io.BufferedReader(Remote(HOST + path), BLOCK_BYTES))
            matches = filter(None, map(re.compile(pattern).fullmatch, wheel.namelist()))
            return {match.group(1): wheel.read(match.group(0)) for match in matches}
        except OSError as error:
            if attempt == ATTEMPTS:
                raise SystemExit(f"cuda_headers: {HOST}{path}: {error}")


def digest(files):
    whole = hashlib.sha256()
    for name, content in sorted(files.items()):
        whole.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return whole.hexdigest()


def make(directory):
    fresh = directory + ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    for path, pattern, wanted in WHEELS:
        files = headers_of(path, pattern)
        if digest(files) != wanted:
            raise SystemExit(f"cuda_headers: {path}: its headers are not those we know ({digest(files)})")
        for name, content in files.items():
            target = os.path.join(fresh, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(content)
    shutil.rmtree(directory, ignore_errors=True)
    os.rename(fresh, directory)


def main():
    directory = os.path.abspath(sys.argv[1])
    made_from = hashlib.sha256(repr(WHEELS).encode()).hexdigest()
    stamp = os.path.join(directory, "made-from")
    os.makedirs(os.path.dirname(directory), exist_ok=True)
    with open(directory + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(stamp) and open(stamp).read() == made_from:
            return
        make(directory)
        with open(stamp, "w") as file:
            file.write(made_from)


if __name__ == "__main__":
    main()
