"""The users of config/acl, as a test makes them."""

import os
import re

from daemon import SOURCE


def rules(role, queue):
    """The words of a role's file behind the user's name, for a queue; selectors stay whole."""
    with open(os.path.join(SOURCE, "config", "acl", role + ".acl"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert len(lines) == 1, "an ACL file of Redis has one line for a user"
    words = re.findall(r"\([^)]*\)|\S+", lines[0].replace("{default}", "{" + queue + "}"))
    assert words[:2] == ["user", "sluice-" + role]
    return words[2:]


def make_user(client, role, queue, words=None):
    """Makes the role's user with the password `pw`, and with other rights where `words` are given."""
    client.execute_command("ACL", "SETUSER", "sluice-" + role, "reset", *(words or rules(role, queue)), ">pw")
