"""The encoders of the families in plain torch operations, for the reference in float64, for torch.compile and for the
export to ONNX: the graph that others optimise is a clean one, without a tracer's remnants of a library's special cases.
Families and the names of their weights are defined in tests/golden/encoder_golden.py."""
import json
import math
import pathlib
import sys

import torch
from safetensors.torch import load_file
from torch.nn import functional

SOURCE = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(SOURCE / "tests/golden"))

import encoder_golden as golden  # noqa: E402


def turned(x, cosine, sine):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)


class Encoder(torch.nn.Module):
    """`fused`: uses torch's own attention operation."""

    def __init__(self, shape, weights, fused=False):
        super().__init__()
        self.shape, self.family, self.fused = shape, golden.family_of(shape), fused
        self.width, positions = shape.get("width", shape["hidden"] // shape["heads"]), golden.positions_of(shape)
        self.group = shape["heads"] // shape.get("key_heads", shape["heads"])
        self.weights = torch.nn.ParameterDict({name.replace(".", "/"): tensor for name, tensor in weights.items()})
        for number, (base, divisor) in enumerate(golden.rotary_of(shape) or ()):
            half = self.width // 2
            angle = torch.arange(positions)[:, None].double() * (base ** (-torch.arange(half).double() / half) / divisor)
            self.register_buffer(f"cosine{number}", torch.cos(angle))
            self.register_buffer(f"sine{number}", torch.sin(angle))
        if shape.get("family") == "mpnet":
            table = {"encoder.relative_attention_bias.weight": weights["encoder.relative_attention_bias.weight"].numpy()}
            self.register_buffer("bias", torch.from_numpy(golden.relative_bias(positions, table).copy()))

    def weight(self, name):
        name = name.replace(".", "/")
        return self.weights[name] if name in self.weights else None

    def linear(self, x, name):
        return functional.linear(x, self.weight(name + ".weight"), self.weight(name + ".bias"))

    def norm(self, x, name):
        if self.family.get("rms"):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.family["eps"]) * self.weight(name + ".weight")
        width = (self.shape["hidden"],)
        return functional.layer_norm(x, width, self.weight(name + ".weight"), self.weight(name + ".bias"), self.family["eps"])

    def attention(self, x, mask, prefix, local):
        length = x.shape[1]
        split = lambda name: self.linear(x, prefix + name).view(x.shape[0], length, -1, self.width).permute(0, 2, 1, 3)
        query, key, value = split("self.query"), split("self.key"), split("self.value")
        if "width" in self.shape:
            query, key = self.norm(query, prefix + "query.LayerNorm"), self.norm(key, prefix + "key.LayerNorm")
        if "rotary" in self.family:
            cosine, sine = getattr(self, f"cosine{local:d}")[:length], getattr(self, f"sine{local:d}")[:length]
            query, key = turned(query, cosine, sine), turned(key, cosine, sine)
        if self.group > 1:
            key, value = key.repeat_interleave(self.group, 1), value.repeat_interleave(self.group, 1)
        if self.fused:
            context = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        else:
            scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.width)
            context = torch.matmul(torch.softmax(scores + mask, -1), value)
        context = context.permute(0, 2, 1, 3).contiguous()
        return self.linear(context.view(x.shape[0], length, self.shape["heads"] * self.width), prefix + "output.dense")

    def feed_forward(self, x, prefix):
        inner = self.linear(x, prefix + "intermediate.dense")
        inner = functional.silu(inner) if self.family.get("silu") else functional.gelu(inner)
        if self.weight(prefix + "up.dense.weight") is not None:
            inner = inner * self.linear(x, prefix + "up.dense")
        return self.linear(inner, prefix + "output.dense")

    def embed(self, ids):
        x = functional.embedding(ids, self.weight("embeddings.word_embeddings.weight"))
        if golden.types_of(self.shape) > 0:
            x = x + self.weight("embeddings.token_type_embeddings.weight")[0]
        if "rotary" not in self.family:
            offset = self.family["offset"]
            x = x + self.weight("embeddings.position_embeddings.weight")[offset:][:ids.shape[1]]
        first = self.norm(x, "embeddings.LayerNorm")
        return x if self.family.get("first_norm") else first, first

    def masks(self, ids, seen):
        """Returns the masks of layers that attend to all tokens, and of local ones."""
        mask = (1.0 - seen[:, None, None, :]) * -10000.0
        if self.shape.get("family") == "mpnet":
            mask = mask + self.bias[None, :, :ids.shape[1], :ids.shape[1]]
        place = torch.arange(golden.positions_of(self.shape), device=ids.device)[:ids.shape[1]]
        if self.shape.get("family") == "qwen3":
            mask = mask + (place[:, None] < place[None, :]).to(seen.dtype) * -10000.0
        if not self.shape.get("local"):
            return mask, mask
        far = (place[:, None] - place[None, :]).abs() > self.family["window"]
        return mask, mask + far.to(seen.dtype) * -10000.0

    def forward(self, input_ids, attention_mask):
        pre_norm = self.family.get("pre_norm")
        total, x = self.embed(input_ids)
        seen = attention_mask.to(x.dtype)
        masks = self.masks(input_ids, seen)
        for layer in range(self.shape["layers"]):
            prefix, local = f"encoder.layer.{layer}.", layer in self.shape.get("local", ())
            total = total + self.attention(x, masks[local], prefix + "attention.", local)
            x = self.norm(total, prefix + "attention.output.LayerNorm")
            total = (total if pre_norm else x) + self.feed_forward(x, prefix)
            x = self.norm(total, prefix + "output.LayerNorm")
            total = total if pre_norm else x
        if self.shape["pooling"] == "cls":
            x = x[:, 0]
        elif self.shape["pooling"] == "lasttoken":
            x = (x * (seen - functional.pad(seen[:, 1:], (0, 1)))[:, :, None]).sum(1)
        else:
            x = (x * seen[:, :, None]).sum(1) / seen.sum(1, keepdim=True)
        return x / x.norm(dim=1, keepdim=True)


def weights_of(shape, stored):
    """Returns {name: tensor} from the file's tensors; some of ours are rows of a larger one there."""
    whole = {part: (whole, number) for whole, parts in golden.family_of(shape).get("packed", {}).items()
             for number, part in enumerate(parts)}
    found = {}
    for name, dims, _, _ in golden.tensor_shapes(shape):
        if golden.is_bare(name, golden.family_of(shape)):
            continue
        part = next((part for part in whole if part in name), None)
        theirs, number = (name.replace(part, whole[part][0]), whole[part][1]) if part else (name, 0)
        found[name] = stored[golden.name_in_file(theirs, shape)][number * dims[0]:][:dims[0]].clone()
    return found


def load(material, dtype, fused=False):
    shape = json.loads((material / "shape.json").read_text())
    stored = load_file(material / "model/model.safetensors")
    return Encoder(shape, weights_of(shape, stored), fused).to(dtype).eval()
