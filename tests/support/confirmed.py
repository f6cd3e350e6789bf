"""A producer for a group of servers: each request counts once the replica has confirmed it (WAIT 1), so that no failover can
lose it. Until then it is submitted again under the same id, to the server that is the master by then.

WAIT must name as many replicas as may become the master: with two of them and WAIT 1, the sentinels may promote the one that
does not have the request yet."""

import redis

from background import Background
from producer import Producer, Request

LOST = (redis.ConnectionError, redis.TimeoutError, redis.ResponseError)  # a replica, a server that loads, that is gone


class ConfirmedLoad(Background):
    """Keeps `depth` requests under way in the background until stopped. `master()` returns the server to talk to, or None."""

    def __init__(self, master, queue, journal, texts, depth=48):
        super().__init__()
        self.master, self.journal, self.texts, self.depth = master, journal, texts, depth
        self.stream = f"sluice:{{{queue}}}:requests"
        self.queue = queue
        self.count = 0
        self.resubmitted = 0
        self._client = None

    def _connect(self):
        if self._client is None:
            server = self.master()
            if server is None:
                raise redis.ConnectionError("no master")
            self._client = server.client(socket_timeout=5)
        return self._client

    def _turn(self):
        try:
            if self._connect().xlen(self.stream) < self.depth:
                self._submit()
                return
        except LOST:
            self._client = None
        self._stop.wait(0.005)

    def _submit(self):
        text = self.texts[self.count % len(self.texts)]
        fields = {"text": text, "id": f"confirmed-{self.count}", "encoding": "f32"}
        request = self.journal.add(Request(fields["id"], text, fields))
        self.count += 1
        while not self._confirmed(request):
            self.resubmitted += 1
            self._stop.wait(0.02)

    def _confirmed(self, request):
        try:
            client = self._connect()
            request.uncertain += 1  # until the answer is here
            entry = client.xadd(self.stream, request.fields).decode()
            request.uncertain -= 1
            request.entries.append(entry)
            return client.wait(1, 1000) >= 1
        except LOST:
            self._client = None
            return False

    def accept_unanswered(self, server):
        """An XADD whose answer was lost may have been the newest with its id: then the reply names an entry that is not in
        the journal. Adds that entry; all other checks stay as strict."""
        producer = Producer(server, self.queue, self.journal)
        for request in self.journal.requests.values():
            entry = producer.reply(request).get("entry", "")
            if request.uncertain and entry not in request.entries:
                request.entries.append(entry)
