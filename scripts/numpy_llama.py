#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Llama in NumPy and float64: the independent implementation that the C++ model is tested with.

Written from the architecture, not from the C++ code, and slow on purpose: one function per step.
Reads a folder with config.json, tokenizer.json and model.safetensors (BF16, F16 or F32), or a GGUF.

    python3 -m venv venv && venv/bin/pip install numpy==2.4.6 gguf==0.19.0 tokenizers==0.23.3
    # Top logits of the last position, then greedy continuation:
    venv/bin/python scripts/numpy_llama.py tests/data/tiny_llama --text "It was" --generate 20
    venv/bin/python scripts/numpy_llama.py MODEL.gguf --ids 1 4093 198
    # The references that are committed:
    venv/bin/python scripts/numpy_llama.py tests/data/tiny_llama --write-tiny-reference
    venv/bin/python scripts/numpy_llama.py MODEL.gguf --write-smollm2-reference
"""
import argparse
import json
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
TINY_PROMPTS = [
    "It is a truth universally acknowledged, that a single man in possession",
    "Elizabeth was at home; 3 letters lay on the table. \u00c9t\u00e9 \u6625.",
]
TINY_POSITIONS = 4  # logits kept: those of the last four positions
CHAT = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
        "<|im_start|>assistant\n")
TOP_LOGITS = 32
SPACED_LOGITS = 256


class Model:
    """Weights by HF name in float64, and the settings that the forward pass needs."""

    def __init__(self, config, weights, tokenizer):
        self.config, self.weights, self.tokenizer = config, weights, tokenizer


def load_folder(folder):
    from tokenizers import Tokenizer
    config = json.loads((folder / "config.json").read_text())
    data = (folder / "model.safetensors").read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + header_bytes])
    weights = {}
    for name, info in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + header_bytes + offset for offset in info["data_offsets"])
        raw = data[begin:end]
        if info["dtype"] == "BF16":  # the upper half of a float32
            values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {"F16": "<f2", "F32": "<f4"}[info["dtype"]])
        weights[name] = values.astype(np.float64).reshape(info["shape"])
    settings = {
        "layers": config["num_hidden_layers"],
        "heads": config["num_attention_heads"],
        "kv_heads": config["num_key_value_heads"],
        "head_dim": config["head_dim"],
        "theta": config["rope_theta"],
        "eps": config["rms_norm_eps"],
    }
    return Model(settings, weights, Tokenizer.from_file(str(folder / "tokenizer.json")))


def half_split_rows(weight, heads):
    """Undoes GGUF's order of Q and K rows, in which RoPE's pairs are neighbours (2i, 2i + 1)."""
    rows, cols = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, cols)
    return pairs.swapaxes(1, 2).reshape(rows, cols)


def load_gguf(path):
    import gguf
    from make_tokenizer_vectors import from_gguf, pre_tokenizer
    reader = gguf.GGUFReader(path)

    def value(key):
        return reader.fields["llama." + key].contents()

    names = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    top = {"token_embd.weight": "model.embed_tokens.weight",
           "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
    settings = {
        "layers": value("block_count"),
        "heads": value("attention.head_count"),
        "kv_heads": value("attention.head_count_kv"),
        "head_dim": value("embedding_length") // value("attention.head_count"),
        "theta": value("rope.freq_base"),
        "eps": value("attention.layer_norm_rms_epsilon"),
    }
    weights = {}
    for tensor in reader.tensors:
        # What a float32 reader of the file gets: the blocks decode to float32.
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        values = values.reshape([int(n) for n in reversed(tensor.shape)])
        if tensor.name in top:
            weights[top[tensor.name]] = values
            continue
        _, layer, kind, _ = tensor.name.split(".")
        if kind in ("attn_q", "attn_k"):
            heads = settings["heads" if kind == "attn_q" else "kv_heads"]
            values = half_split_rows(values, heads)
        weights[f"model.layers.{layer}.{names[kind]}.weight"] = values
    tokenizer, (name,) = from_gguf(path)
    tokenizer.pre_tokenizer = pre_tokenizer(name)
    return Model(settings, weights, tokenizer)


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rotate(x, theta):
    """RoPE on [length, heads, head_dim], a pair being elements i and i + head_dim / 2."""
    length, _, head_dim = x.shape
    half = head_dim // 2
    angle = np.arange(length)[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    low, high = x[..., :half], x[..., half:]
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def attention(q, k, v):
    """Causal; q is [length, heads, head_dim], k and v have kv_heads, shared by groups of heads."""
    length, heads, head_dim = q.shape
    group = heads // k.shape[1]
    out = np.empty_like(q)
    for head in range(heads):
        scores = q[:, head] @ k[:, head // group].T / np.sqrt(head_dim)
        scores[np.triu_indices(length, 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out[:, head] = weights / weights.sum(axis=-1, keepdims=True) @ v[:, head // group]
    return out.reshape(length, heads * head_dim)


def forward(model, ids):
    """Logits [length, vocab] of one sequence."""
    config, weights = model.config, model.weights
    x = weights["model.embed_tokens.weight"][np.asarray(ids)]
    for layer in range(config["layers"]):
        def w(name, layer=layer):
            return weights[f"model.layers.{layer}.{name}.weight"]

        h = rms_norm(x, w("input_layernorm"), config["eps"])
        q, k, v = ((h @ w(f"self_attn.{name}_proj").T).reshape(len(ids), -1, config["head_dim"])
                   for name in "qkv")
        mixed = attention(rotate(q, config["theta"]), rotate(k, config["theta"]), v)
        x = x + mixed @ w("self_attn.o_proj").T
        h = rms_norm(x, w("post_attention_layernorm"), config["eps"])
        gate = h @ w("mlp.gate_proj").T
        gated = gate / (1 + np.exp(-gate)) * (h @ w("mlp.up_proj").T)
        x = x + gated @ w("mlp.down_proj").T
    x = rms_norm(x, weights["model.norm.weight"], config["eps"])
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return x @ head.T


def encode(model, text):
    return model.tokenizer.encode(text, add_special_tokens=False).ids


def generate(model, ids, count):
    ids = list(ids)
    for _ in range(count):
        ids.append(int(np.argmax(forward(model, ids)[-1])))
    return ids


def rounded(values):
    """As float32, in the fewest digits that give the same float32 back."""
    return [float(str(np.float32(v))) for v in np.ravel(values)]


def write_tiny_reference(model):
    prompts = []
    for text in TINY_PROMPTS:
        ids = encode(model, text)
        logits = forward(model, ids)[-TINY_POSITIONS:]
        prompts.append({
            "text": text, "ids": ids,
            "positions": list(range(len(ids) - TINY_POSITIONS, len(ids))),
            "logits": [rounded(row) for row in logits],
            "greedy_ids": generate(model, ids, 24)[len(ids):],
        })
    out = DATA / "tiny_llama" / "reference_logits.json"
    rows = ",\n".join(json.dumps(prompt, separators=(",", ":")) for prompt in prompts)
    out.write_text('{"made_by":"scripts/numpy_llama.py, float64","prompts":[\n' + rows + "\n]}\n")
    for prompt in prompts:
        print(repr(prompt["text"]), "->", repr(model.tokenizer.decode(prompt["greedy_ids"])))


def write_smollm2_reference(model):
    ids = encode(model, CHAT)
    last = forward(model, ids)[-1]
    top = np.argsort(-last, kind="stable")[:TOP_LOGITS]
    spaced = np.arange(SPACED_LOGITS) * (last.size // SPACED_LOGITS)
    reference = {
        "made_by": "scripts/numpy_llama.py, float64, SmolLM2-135M-Instruct.Q4_1.gguf",
        "text": CHAT, "ids": ids,
        "top_ids": top.tolist(), "top_logits": rounded(last[top]),
        "spaced_ids": spaced.tolist(), "spaced_logits": rounded(last[spaced]),
        "greedy_ids": generate(model, ids, 8)[len(ids):],
    }
    out = DATA / "smollm2_reference_logits.json"
    rows = ",\n".join(f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}"
                      for k, v in reference.items())
    out.write_text("{" + rows + "}\n")
    print(repr(model.tokenizer.decode(reference["greedy_ids"])))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a folder with model.safetensors, or a GGUF")
    parser.add_argument("--ids", type=int, nargs="+")
    parser.add_argument("--text")
    parser.add_argument("--generate", type=int, default=0, metavar="COUNT")
    parser.add_argument("--write-tiny-reference", action="store_true")
    parser.add_argument("--write-smollm2-reference", action="store_true")
    arguments = parser.parse_args()
    model = load_folder(arguments.model) if arguments.model.is_dir() else load_gguf(arguments.model)
    if arguments.write_tiny_reference:
        write_tiny_reference(model)
    if arguments.write_smollm2_reference:
        write_smollm2_reference(model)
    ids = arguments.ids or (encode(model, arguments.text) if arguments.text else None)
    if ids:
        last = forward(model, ids)[-1]
        print("ids:", ids)
        for token in np.argsort(-last, kind="stable")[:10]:
            print(f"{token:6d} {last[token]:10.5f} {model.tokenizer.id_to_token(int(token))!r}")
        if arguments.generate:
            print(repr(model.tokenizer.decode(generate(model, ids, arguments.generate))))


if __name__ == "__main__":
    main()
