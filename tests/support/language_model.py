"""Small random language models, and their texts."""

import json
import os
import random

from model import bare_tensors, write_safetensors

END, START, STOP = 256, 257, 258
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT = "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"


def letters():
    """The characters of byte-level BPE, by their bytes."""
    visible = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in visible else chr(next(others)) for byte in range(256)]


def make_llama(directory, seed=1, template=CHAT, positions=256, **config):
    """A small random Llama whose tokens are bytes."""
    os.makedirs(directory)

    def put(file, content):
        with open(os.path.join(directory, file), "w", encoding="utf-8") as to:
            json.dump(content, to)

    hidden, inner, vocabulary = 32, 48, 256 + len(SPECIALS)
    put("config.json", {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "hidden_act": "silu",
                        "intermediate_size": inner, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                        "max_position_embeddings": positions, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
                        "tie_word_embeddings": True, "vocab_size": vocabulary, "eos_token_id": [END, STOP], **config})
    put("tokenizer_config.json", {"eos_token": "<|im_end|>", **({"chat_template": template} if template else {})})
    put("tokenizer.json", {
        "added_tokens": [{"id": 256 + i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, token in enumerate(SPECIALS)],
        "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {letter: byte for byte, letter in enumerate(letters())}, "merges": []}})
    parts = [("input_layernorm", hidden), ("self_attn.q_proj", hidden, hidden), ("self_attn.k_proj", 16, hidden),
             ("self_attn.v_proj", 16, hidden), ("self_attn.o_proj", hidden, hidden), ("post_attention_layernorm", hidden),
             ("mlp.gate_proj", inner, hidden), ("mlp.up_proj", inner, hidden), ("mlp.down_proj", hidden, inner)]
    named = [(f"model.layers.{i}.{part}", *dims) for i in range(2) for part, *dims in parts]
    write_safetensors(os.path.join(directory, "model.safetensors"),
                      bare_tensors([("model.embed_tokens", vocabulary, hidden), *named, ("model.norm", hidden)], random.Random(seed)))
    return directory


class LanguageModels:
    """For cases: models in their directory, and what they write."""

    def llama(self, name="llama", **how):
        return make_llama(self.path("models", name), **how)

    def endless(self):
        """A model that never ends a text by itself."""
        return self.llama("endless", positions=1 << 17, eos_token_id=None, seed=4)

    def locally(self, directory, prompt, *arguments):
        """The line that `sluice generate` writes for a prompt or a list of messages."""
        name = "prompt" if isinstance(prompt, str) else "messages"
        source = self.write("in.txt", json.dumps({name: prompt}) + "\n")
        result = self.run_sluice("generate", "--model", directory, "--precision", "f32", "--input", source, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)
