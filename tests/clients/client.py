# usage: client.py SOCKET QUEUE TEXTS.json — enqueues each text twice (json and f32), waits, prints two lines of hex floats.
import array
import json
import sys

import redis

connection = redis.Redis(unix_socket_path=sys.argv[1])
prefix = "sluice:{" + sys.argv[2] + "}:"
with open(sys.argv[3], encoding="utf-8") as file:
    texts = json.load(file)
for text in texts:
    for encoding in ("json", "f32"):
        id = connection.xadd(prefix + "requests", {"text": text, "encoding": encoding, "notify": "1"}).decode()
        assert connection.blpop([prefix + "wake:" + id], timeout=30), "no wake token"
        reply = connection.hgetall(prefix + "reply:" + id)
        assert reply[b"status"] == b"done", reply
        if encoding == "json":
            floats = array.array("f", json.loads(reply[b"embedding"]))
        else:
            floats = array.array("f", reply[b"embedding"])
        assert len(floats) == json.loads(reply[b"info"])["dim"]
        print(floats.tobytes().hex())
