"""A BERT encoder in plain torch operations, for the reference in float64, for torch.compile and for the export to ONNX: the
graph that others optimise is a clean one, without what a tracer leaves of a library's cases."""
import json
import math

import torch
from safetensors.torch import load_file


class Layer(torch.nn.Module):
    def __init__(self, shape, fused):
        super().__init__()
        hidden, inner = shape["hidden"], shape["inner"]
        self.heads, self.width, self.fused = shape["heads"], hidden // shape["heads"], fused
        self.query, self.key, self.value, self.mix = (torch.nn.Linear(hidden, hidden) for _ in range(4))
        self.wide, self.narrow = torch.nn.Linear(hidden, inner), torch.nn.Linear(inner, hidden)
        self.first_norm, self.second_norm = (torch.nn.LayerNorm(hidden, eps=1e-12) for _ in range(2))

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, self.width).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        if self.fused:
            context = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        else:
            scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.width)
            context = torch.matmul(torch.softmax(scores + mask, -1), value)
        context = context.permute(0, 2, 1, 3).contiguous()
        context = context.view(context.shape[0], context.shape[1], self.heads * self.width)
        x = self.first_norm(self.mix(context) + x)
        return self.second_norm(self.narrow(torch.nn.functional.gelu(self.wide(x))) + x)


class Bert(torch.nn.Module):
    """`fused`: with torch's own attention operation."""

    def __init__(self, shape, fused=False):
        super().__init__()
        hidden = shape["hidden"]
        self.words, self.places = torch.nn.Embedding(30522, hidden), torch.nn.Embedding(512, hidden)
        self.types, self.norm = torch.nn.Embedding(2, hidden), torch.nn.LayerNorm(hidden, eps=1e-12)
        self.layers = torch.nn.ModuleList(Layer(shape, fused) for _ in range(shape["layers"]))
        self.pooling = shape["pooling"]

    def forward(self, input_ids, attention_mask):
        places = torch.arange(512, device=input_ids.device)[None, :input_ids.shape[1]]
        x = self.norm(self.words(input_ids) + self.types(torch.zeros_like(input_ids)) + self.places(places))
        seen = attention_mask.to(x.dtype)
        mask = (1.0 - seen[:, None, None, :]) * -10000.0
        for layer in self.layers:
            x = layer(x, mask)
        if self.pooling == "cls":
            x = x[:, 0]
        else:
            x = (x * seen[:, :, None]).sum(1) / seen.sum(1, keepdim=True)
        return x / x.norm(dim=1, keepdim=True)


def theirs(name):
    """The checkpoint's name of a weight of ours."""
    part, _, kind = name.rpartition(".")
    top = {"words": "word_embeddings", "places": "position_embeddings", "types": "token_type_embeddings", "norm": "LayerNorm"}
    if part in top:
        return f"embeddings.{top[part]}.{kind}"
    _, number, place = part.split(".")
    places = {"query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
              "mix": "attention.output.dense", "first_norm": "attention.output.LayerNorm", "wide": "intermediate.dense",
              "narrow": "output.dense", "second_norm": "output.LayerNorm"}
    return f"encoder.layer.{number}.{places[place]}.{kind}"


def load(material, dtype, fused=False):
    shape = json.loads((material / "shape.json").read_text())
    model, weights = Bert(shape, fused), load_file(material / "model/model.safetensors")
    model.load_state_dict({name: weights[theirs(name)] for name in model.state_dict()})
    return model.to(dtype).eval()
