"""The users of config/acl, as a test makes them."""

import os
import re
import subprocess

from daemon import SOURCE

ROLES = ("worker", "producer", "operator")
PASSWORD = "pw"  # the password of each user


def rules(role, queue):
    """The words of a role's file after the user's name, for a queue; selectors stay whole."""
    with open(os.path.join(SOURCE, "config", "acl", role + ".acl"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert len(lines) == 1, "an ACL file of Redis has one line for a user"
    words = re.findall(r"\([^)]*\)|\S+", lines[0].replace("{default}", "{" + queue + "}"))
    assert words[:2] == ["user", "sluice-" + role]
    return words[2:]


def make_user(client, role, queue, words=None):
    """Makes the role's user with the password `pw`, and with other rights where `words` are given."""
    client.execute_command("ACL", "SETUSER", "sluice-" + role, "reset", *(words or rules(role, queue)), ">pw")


def shipped_users(secrets, *queues, everybody=None):
    """The output of config/make-users.sh for `default` and these queues: sluice-worker and so on have their rights in all of them.
    `secrets`: a folder for the passwords. `everybody`: the role whose rights a client without a login has; None: it has none."""
    os.makedirs(secrets, exist_ok=True)
    for name in (*ROLES, "admin"):
        with open(os.path.join(secrets, name + "_password"), "w", encoding="ascii") as file:
            file.write(PASSWORD + "\n")
    script = os.path.join(SOURCE, "config", "make-users.sh")
    done = subprocess.run([script, secrets, ",".join(dict.fromkeys(("default", *queues)))], capture_output=True, text=True, check=True)
    users = done.stdout.splitlines()
    if everybody:
        password = next(word for word in users[1].split() if word.startswith("#"))
        role = next(line for line in users if line.startswith(f"user sluice-{everybody}"))
        users[0] = re.sub(r"^user \S+", "user default", role).replace(password, "nopass")
    return "\n".join(users) + "\n"
