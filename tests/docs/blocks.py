"""The pieces of code in a page of docs/, so that the tests run the code that people copy."""

import re


def code_blocks(page):
    """(language, code) of every fenced block of a page, in its order."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def only_block(page, mark):
    """The code of the one block that has these words in it."""
    found = [code for _, code in code_blocks(page) if mark in code]
    assert len(found) == 1, f"{len(found)} blocks have {mark!r} in them"
    return found[0]


def put_in(code, text, other):
    """The code with another text, such as the address of a server, which must be there once."""
    assert code.count(text) == 1, f"{text!r} is not once in\n{code}"
    return code.replace(text, other)
