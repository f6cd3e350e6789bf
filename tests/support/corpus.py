"""Texts for the queue tests: distinct, of mixed lengths, made from the tiny model's own words plus some it does not know."""

import random

from model import WORDS


def texts(count, seed=1, longest=40):
    generator = random.Random(seed)
    made = []
    for number in range(count):
        words = [generator.choice(WORDS) for _ in range(generator.randint(1, longest))]
        made.append(f"{number} " + " ".join(words))
    return made


# Texts that a client library must carry unchanged: other scripts, signs of the shell and of JSON, a byte order mark.
AWKWARD = ["hello world", "Größe, señor, 世界 und 日本語", "quotes \" and ' and \\ and {braces}", "tabs\tand  spaces",
           "emoji \U0001f680\U0001f468\u200d\U0001f469\u200d\U0001f467", "combining e\u0301 n\u0303", "$(rm) `x` %s %n", "1"]
