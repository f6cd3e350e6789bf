"""The expected vectors: f32 of transformers on the device, or f64 formulas in NumPy, where there is no torch, and for
families that not every version of transformers has."""
import numpy as np

from shapes import SHAPES, golden, tensors


def numpy_vectors(folder, name, texts):
    """The forward pass of tests/golden/encoder_golden.py; for tiny models, or few texts."""
    weights = {}
    for key, values in tensors(folder).items():
        bits = values.astype("<u4") << 16 if values.dtype == np.dtype("<u2") else None
        weights[key] = (values if bits is None else bits.view("<f4")).astype(np.float64)
    weights = golden.unpacked(weights, SHAPES[name])
    return np.array([golden.encode(ids, weights, SHAPES[name]) for ids in texts])


def quiet():
    """Silences progress bars, and warnings about the pooler that our checkpoints do not have."""
    from transformers.utils import logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def load_transformers(folder, dtype, device, attention="sdpa"):
    """A BertModel without pooler."""
    import torch
    from transformers import BertModel
    quiet()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    model = BertModel.from_pretrained(folder, dtype=dtype, attn_implementation=attention, add_pooling_layer=False)
    return model.eval().to(device)


def pool(hidden, mask, pooling):
    """Sentence vectors of length 1 from token vectors, in f32."""
    import torch
    hidden = hidden.float()
    if pooling == "cls":
        vectors = hidden[:, 0]
    else:
        mask = mask[:, :, None].to(hidden.dtype)
        vectors = (hidden * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(vectors, dim=1)


def transformers_vectors(folder, name, texts, device, rows_at_once=64):
    """f32 without TF32, eager attention, texts of one length together: no padding and no mask to go wrong."""
    import torch
    model = load_transformers(folder, torch.float32, device, "eager")
    vectors = np.empty((len(texts), SHAPES[name]["hidden"]), np.float32)
    by_length = {}
    for index, ids in enumerate(texts):
        by_length.setdefault(len(ids), []).append(index)
    with torch.inference_mode():
        for group in by_length.values():
            for at in range(0, len(group), rows_at_once):
                which = group[at:at + rows_at_once]
                ids = torch.from_numpy(np.stack([texts[i] for i in which]).astype(np.int64)).to(device)
                mask = torch.ones_like(ids)
                hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
                vectors[which] = pool(hidden, mask, SHAPES[name]["pooling"]).cpu().numpy()
    return vectors


def vectors(kind, folder, name, texts, device):
    if kind == "numpy" or "family" in SHAPES[name]:
        return numpy_vectors(folder, name, texts)
    return transformers_vectors(folder, name, texts, device)
