"""Model files made of the one that ships: where its tensors lie, and the same model with float weights."""
import array
import os
import struct
import sys

SHIPPED = "models/tales-q8_0.gguf"
F32, Q8_0 = 0, 8
BLOCK, BLOCK_BYTES = 32, 34         # Q8_0: a half-float scale and 32 signed bytes


class Tensor:
    def __init__(self, name, dims, kind, offset):
        self.name, self.dims, self.kind, self.offset = name, dims, kind, offset
        self.elements = 1
        for d in dims:
            self.elements *= d

    def bytes(self):
        return {F32: self.elements * 4, Q8_0: self.elements // BLOCK * BLOCK_BYTES}[self.kind]


class File:
    """`keys` is all before the tensors' list, as it stands; offsets count from the file's begin."""

    def __init__(self, data):
        self.data, self.at = data, 8
        n_tensors, n_keys = self.take("Q"), self.take("Q")
        values = {}
        for _ in range(n_keys):
            key = self.text()
            values[key] = self.value(self.take("I"))
        self.keys = bytes(data[:self.at])
        self.tensors = {}
        for _ in range(n_tensors):
            name = self.text()
            dims = [self.take("Q") for _ in range(self.take("I"))]
            self.tensors[name] = Tensor(name, dims, self.take("I"), self.take("Q"))
        self.align = values.get("general.alignment", 32)
        start = self.aligned(self.at)
        for t in self.tensors.values():
            t.offset += start

    def aligned(self, n):
        return (n + self.align - 1) // self.align * self.align

    def take(self, form):
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode(errors="replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            of, n = self.take("I"), self.take("Q")
            return [self.value(of) for _ in range(n)]
        return self.take("BbHhIif?ssQqd"[kind])

    def floats(self, t):
        """The tensor's bytes as F32."""
        data = self.data[t.offset:t.offset + t.bytes()]
        if t.kind == F32:
            return bytes(data)
        out = array.array("f")
        for scale, *quants in struct.iter_unpack("<e32b", data):
            out.extend([scale * q for q in quants])
        if sys.byteorder == "big":
            out.byteswap()
        return out.tobytes()


def with_float_weights():
    """The shipped model's numbers as F32: its products round no activation, so two orders of a sum lie within 1e-3. Made once."""
    path = os.path.join(os.environ["TMP"], "tales-f32.gguf")
    if os.path.exists(path):
        return path
    with open(SHIPPED, "rb") as f:
        file = File(f.read())
    head, at = file.keys, 0
    for t in file.tensors.values():
        name = t.name.encode()
        head += struct.pack("<Q", len(name)) + name + struct.pack("<I%dQ" % len(t.dims), len(t.dims), *t.dims) + struct.pack("<IQ", F32, at)
        at = file.aligned(at + 4 * t.elements)
    with open(path + ".part", "wb") as f:
        f.write(head)
        for t in file.tensors.values():
            f.write(b"\0" * (file.aligned(f.tell()) - f.tell()))
            f.write(file.floats(t))
    os.rename(path + ".part", path)
    return path
