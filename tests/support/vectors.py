"""The local vectors with which replies are compared, from `sluice embed`; and the meaning of the encodings."""

import base64
import json
import os
import struct
import tempfile

from daemon import BINARY, sluice


def read_npy(path):
    """Rows of a float32 [n, dim] .npy file, each as its little-endian bytes."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:6] == b"\x93NUMPY", "not a .npy file"
    major = data[6]
    size = struct.unpack("<H", data[8:10])[0] if major == 1 else struct.unpack("<I", data[8:12])[0]
    start = (10 if major == 1 else 12) + size
    header = eval(data[start - size:start].decode(), {"__builtins__": {}})  # a literal of ours
    assert header["descr"] == "<f4" and header["fortran_order"] is False, header
    rows, dim = header["shape"]
    body = data[start:]
    assert len(body) == rows * dim * 4, "the .npy file's size does not fit its header"
    assert start % 64 == 0, "the .npy data is not aligned"
    return [body[i * dim * 4:(i + 1) * dim * 4] for i in range(rows)]


def decode_f32(encoding, embedding):
    """The float32 bytes that an `embedding` field means; several vectors follow each other."""
    if encoding in ("f32", "f16"):  # f16 stays as it is: encode_like converts the expected one
        return embedding
    if encoding == "base64":
        return base64.b64decode(embedding, validate=True)
    if encoding == "json":
        values = json.loads(embedding)
        assert isinstance(values, list), "not an array"
        if values and isinstance(values[0], list):
            values = [value for row in values for value in row]
        assert all(isinstance(value, (int, float)) for value in values), "not numbers"
        return struct.pack(f"<{len(values)}f", *values)
    raise AssertionError(f"unknown encoding {encoding}")


def encode_like(encoding, vector):
    """f32 bytes after a round trip through an `embedding` of this encoding and decode_f32: f16 rounds to even."""
    return struct.pack(f"<{len(vector) // 4}e", *struct.unpack(f"<{len(vector) // 4}f", vector)) if encoding == "f16" else vector


class Reference:
    """text -> the f32 bytes of its vector, computed locally by the same engine without any queue."""

    def __init__(self, model, precision="f32", flags=(), binary=BINARY):
        self.model, self.precision, self.flags, self.binary = str(model), precision, list(flags), binary
        self.known = {}

    def learn(self, texts):
        new = sorted(set(texts) - self.known.keys())
        if not new:
            return
        assert not any("\n" in text or "\r" in text for text in new), "embed reads one text per line"
        with tempfile.TemporaryDirectory() as directory:
            source, target = os.path.join(directory, "texts"), os.path.join(directory, "vectors.npy")
            with open(source, "w", encoding="utf-8", newline="") as file:
                file.writelines(text + "\n" for text in new)
            result = sluice("embed", "--model", self.model, "--precision", self.precision, "--input", source, "--format", "lines",
                            "--output", target, *self.flags, binary=self.binary, timeout=300)
            assert result.returncode == 0, f"sluice embed: {result.returncode} {result.stderr.decode()}"
            rows = read_npy(target)
        assert len(rows) == len(new), f"embed gave {len(rows)} vectors for {len(new)} texts"
        assert len(set(rows)) > len(rows) // 2, "the reference model cannot tell texts apart"
        self.known.update(zip(new, rows))

    def __call__(self, text):
        if text not in self.known:
            self.learn([text])
        return self.known[text]
