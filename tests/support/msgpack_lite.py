"""Just enough MessagePack to write the values of later:data: arrays of byte strings."""


def array(*items):
    return b"\xdc" + len(items).to_bytes(2, "big") + b"".join(
        item if item[:1] == b"\xdc" else b"\xda" + len(item).to_bytes(2, "big") + item for item in items)
