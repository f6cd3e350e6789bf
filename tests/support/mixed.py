"""A load with everything that a request may ask for, in proportions that let every feature meet every fault.

If chance decides (a short deadline, a cancel that races the answer), the journal names all right answers."""

import json
import random

from producer import Load, Request

ENCODINGS = ("f32", "json", "f16", "base64")


class Mixed(Load):
    """Each request draws one kind; the same seed draws the same kinds."""

    def __init__(self, *arguments, seed=1, **options):
        super().__init__(*arguments, **options)
        self.random = random.Random(seed)
        self.kinds = {}  # name -> how many were sent
        weights = {"plain": 36, "high": 8, "low": 8, "inputs": 8, "delayed": 6, "hasty": 4, "woken": 4, "told": 6,
                   "tenant": 5, "twice": 4, "cancelled": 6, "wrong": 5}
        self.makers = [getattr(self, "_" + kind) for kind, weight in weights.items() for _ in range(weight)]

    def _submit(self, id, text):
        make = self.random.choice(self.makers)
        kind = make.__name__[1:]
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        make(id, text)

    def _push(self, id, text, expected="done", level="", **fields):
        asked = {"inputs": json.dumps(text, ensure_ascii=False)} if isinstance(text, list) else {"text": text}
        asked.update(id=id, encoding=self.random.choice(ENCODINGS), **fields)
        request = Request(id, text, asked)
        request.expected = expected
        return self.producer.push(self.producer.journal.add(request), level)

    def _some_level(self):
        return self.random.choice(("", "", "high", "low"))

    def _plain(self, id, text):
        self._push(id, text)

    def _high(self, id, text):
        self._push(id, text, level="high")

    def _low(self, id, text):
        self._push(id, text, level="low")

    def _inputs(self, id, text):
        self._push(id, [self.random.choice(self.texts) for _ in range(self.random.randint(1, 12))], level=self._some_level())

    def _delayed(self, id, text):
        self._push(id, text, level=self._some_level(), delay=self.random.randint(1, 400))

    def _hasty(self, id, text):
        self._push(id, text, {"done", "expired"}, level=self._some_level(), expires_in=self.random.randint(1, 60))

    def _woken(self, id, text):
        self._push(id, text, level=self._some_level(), notify=1, expires_in=600000)

    def _told(self, id, text):
        self._push(id, text, level=self._some_level(), notify="stream:" + self.random.choice(("web-1", "web-2")))

    def _tenant(self, id, text):
        self._push(id, text, level=self._some_level(), tenant=self.random.choice("abc"), meta="told back")

    def _twice(self, id, text):
        """The same id with another text at once: the newer one's vector is the answer."""
        request = self._push(id, text)
        for name in request.entries:
            request.texts[name] = text
        request.text = request.fields["text"] = self.random.choice(self.texts)
        self.producer.push(request)

    def _cancelled(self, id, text):
        delay = {"delay": 200} if self.random.random() < 0.5 else {}
        request = self._push(id, text, {"done", "cancelled"}, level=self._some_level(), **delay)
        self.producer.cancel(request, self._some_level())

    def _wrong(self, id, text):
        wrong = self.random.choice(({"ttl": 0}, {"priority": 1, "max_attempts": 11}, {"expires_in": "soon"}, {"notify": 2},
                                    {"truncate": "yes"}, {"tenant": "no spaces"}, {"delay": -1}))
        request = self._push(id, text, "bad_request", level=self._some_level(), **wrong)
        request.text = None
