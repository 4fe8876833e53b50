#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the tiny Llama that the tests and an offline clone use (tests/data/tiny_llama).

Not a way to train anything larger: one core, one file, about a quarter of an hour. The forward pass that
checks the result independently is numpy_llama.py.

    apt-get install r-cran-janeaustenr        # the corpus: six novels in the public domain
    python3 -m venv venv && venv/bin/pip install numpy==2.4.6 jax==0.10.2 ml_dtypes==0.6.0 \
        tokenizers==0.23.3
    venv/bin/python scripts/train_tiny_llama.py --out tests/data/tiny_llama

Every random number comes from SEED, so the same packages on the same kind of CPU give the same
weights; another CPU rounds differently and gives a model of the same quality.
"""
import argparse
import json
import os
import time
import zlib
from pathlib import Path

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false --xla_force_host_platform_device_count=1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if hasattr(os, "sched_setaffinity"):  # one core: also keeps XLA's thread pools at one thread
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import tokenizers

SEED = 20250101
CORPUS = "/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
END_OF_TEXT = "<|endoftext|>"
SPECIAL_TOKENS = [END_OF_TEXT, "<|im_start|>", "<|im_end|>"]

# Odd on purpose: three query heads share one key/value head (a group that is no power of two),
# and neither 192 nor 320 is a multiple of 128, so block scales meet a short last block.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
    "vocab_size": 768,
    "hidden_size": 192,
    "intermediate_size": 320,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "max_position_embeddings": 1024,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
CONTEXT = 256
BATCH = 8
PEAK_RATE = 4e-3
WARMUP_STEPS = 50
WEIGHT_DECAY = 0.05


def read_character_vector(raw):
    """The strings of one R character vector in XDR serialization, version 3."""
    if raw[:2] != b"X\n":
        raise ValueError("not an XDR serialization")
    native_bytes = int.from_bytes(raw[14:18], "big")
    at = 18 + native_bytes
    flags, count = (int.from_bytes(raw[at + i:at + i + 4], "big") for i in (0, 4))
    if flags & 0xFF != 16:
        raise ValueError("not a character vector")
    at += 8
    strings = []
    for _ in range(count):
        length = int.from_bytes(raw[at + 4:at + 8], "big", signed=True)
        strings.append(raw[at + 8:at + 8 + max(length, 0)].decode("utf-8"))
        at += 8 + max(length, 0)
    return strings


def read_novels(path):
    """Each novel as one string, its lines joined into paragraphs."""
    data = Path(path).read_bytes()
    novels, at = [], 0
    while at < len(data):
        inflate = zlib.decompressobj()
        raw = inflate.decompress(data[at + 4:])  # four bytes of size come first
        at = len(data) - len(inflate.unused_data)
        text = "\n".join(line.rstrip() for line in read_character_vector(raw))
        paragraphs = [" ".join(p.split()) for p in text.split("\n\n")]
        novels.append("\n".join(p for p in paragraphs if p))
    return novels


def train_tokenizer(novels):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"], special_tokens=SPECIAL_TOKENS, show_progress=False,
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(novels, trainer)
    if tokenizer.get_vocab_size() != CONFIG["vocab_size"]:
        raise ValueError("the tokenizer did not reach its vocabulary size")
    return tokenizer


def initial_weights(rng):
    hidden, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    q_rows = CONFIG["num_attention_heads"] * CONFIG["head_dim"]
    kv_rows = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]
    residual_scale = (2 * CONFIG["num_hidden_layers"]) ** -0.5

    def normal(rows, cols, scale=1.0):
        return (rng.standard_normal((rows, cols)) * 0.5 * scale * cols ** -0.5).astype(np.float32)

    weights = {"model.embed_tokens.weight":
               (0.02 * rng.standard_normal((CONFIG["vocab_size"], hidden))).astype(np.float32)}
    for layer in range(CONFIG["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        weights[name + "input_layernorm.weight"] = np.ones(hidden, np.float32)
        weights[name + "self_attn.q_proj.weight"] = normal(q_rows, hidden)
        weights[name + "self_attn.k_proj.weight"] = normal(kv_rows, hidden)
        weights[name + "self_attn.v_proj.weight"] = normal(kv_rows, hidden)
        weights[name + "self_attn.o_proj.weight"] = normal(hidden, q_rows, residual_scale)
        weights[name + "post_attention_layernorm.weight"] = np.ones(hidden, np.float32)
        weights[name + "mlp.gate_proj.weight"] = normal(inner, hidden)
        weights[name + "mlp.up_proj.weight"] = normal(inner, hidden)
        weights[name + "mlp.down_proj.weight"] = normal(hidden, inner, residual_scale)
    weights["model.norm.weight"] = np.ones(hidden, np.float32)
    return {name: jnp.asarray(value) for name, value in weights.items()}


def rms_norm(x, weight):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + CONFIG["rms_norm_eps"]) * weight


def rotate(x, cos, sin):
    """RoPE with a pair made of elements i and i + head_dim/2 (the convention of HF checkpoints)."""
    low, high = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def forward(weights, ids):
    batch, length = ids.shape
    heads, kv_heads, head_dim = (CONFIG[k] for k in (
        "num_attention_heads", "num_key_value_heads", "head_dim"))
    frequency = CONFIG["rope_theta"] ** (-np.arange(0, head_dim, 2) / head_dim)
    angle = np.arange(length)[:, None] * frequency
    cos, sin = (jnp.asarray(f(angle), jnp.float32)[:, None, :] for f in (np.cos, np.sin))
    mask = jnp.tril(jnp.ones((length, length), bool))
    x = weights["model.embed_tokens.weight"][ids]
    for layer in range(CONFIG["num_hidden_layers"]):
        w = {k.split(f"layers.{layer}.")[1]: v for k, v in weights.items()
             if f"layers.{layer}." in k}
        h = rms_norm(x, w["input_layernorm.weight"])
        q = (h @ w["self_attn.q_proj.weight"].T).reshape(batch, length, heads, head_dim)
        k = (h @ w["self_attn.k_proj.weight"].T).reshape(batch, length, kv_heads, head_dim)
        v = (h @ w["self_attn.v_proj.weight"].T).reshape(batch, length, kv_heads, head_dim)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (jnp.repeat(t, heads // kv_heads, axis=2) for t in (k, v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * head_dim ** -0.5
        attention = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", attention, v).reshape(batch, length, -1)
        x = x + mixed @ w["self_attn.o_proj.weight"].T
        h = rms_norm(x, w["post_attention_layernorm.weight"])
        gated = jax.nn.silu(h @ w["mlp.gate_proj.weight"].T) * (h @ w["mlp.up_proj.weight"].T)
        x = x + gated @ w["mlp.down_proj.weight"].T
    return rms_norm(x, weights["model.norm.weight"]) @ weights["model.embed_tokens.weight"].T


def mean_loss(weights, windows):
    log_p = jax.nn.log_softmax(forward(weights, windows[:, :-1]), axis=-1)
    return -jnp.mean(jnp.take_along_axis(log_p, windows[:, 1:, None], axis=-1))


@jax.jit
def adamw_step(weights, first, second, windows, step, rate):
    loss, gradient = jax.value_and_grad(mean_loss)(weights, windows)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in gradient.values()))
    clip = jnp.minimum(1.0, 1.0 / (norm + 1e-9))
    for name in weights:
        g = gradient[name] * clip
        first[name] = 0.9 * first[name] + 0.1 * g
        second[name] = 0.98 * second[name] + 0.02 * g * g
        update = (first[name] / (1 - 0.9 ** step)) / (
            jnp.sqrt(second[name] / (1 - 0.98 ** step)) + 1e-8)
        decay = WEIGHT_DECAY * weights[name] if weights[name].ndim == 2 else 0.0
        weights[name] = weights[name] - rate * (update + decay)
    return weights, first, second, loss


def write_safetensors(path, tensors):
    """`tensors`: name to bfloat16 array. The header is padded with spaces to eight bytes."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(value.shape),
                        "data_offsets": [offset, offset + value.nbytes]}
        offset += value.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in tensors.values():
            file.write(value.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", default=CORPUS)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--steps", type=int, default=2000)
    arguments = parser.parse_args()
    os.nice(19)

    novels = read_novels(arguments.corpus)
    tokenizer = train_tokenizer(novels)
    arguments.out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(arguments.out / "tokenizer.json"))
    (arguments.out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")

    ids = np.concatenate([[0] + tokenizer.encode(novel).ids for novel in novels]).astype(np.int32)
    held_out, training = ids[-20 * (CONTEXT + 1):], ids[:-20 * (CONTEXT + 1)]
    rng = np.random.default_rng(SEED)
    weights = initial_weights(rng)
    print(f"{sum(w.size for w in weights.values())} parameters, {training.size} training tokens",
          flush=True)

    first, second = ({n: jnp.zeros_like(w) for n, w in weights.items()} for _ in range(2))
    started, recent = time.time(), []
    for step in range(1, arguments.steps + 1):
        starts = rng.integers(0, training.size - CONTEXT - 1, BATCH)
        windows = np.stack([training[s:s + CONTEXT + 1] for s in starts])
        done = step / arguments.steps
        rate = PEAK_RATE * min(step / WARMUP_STEPS, 0.5 * (1 + np.cos(np.pi * done)) + 0.01)
        weights, first, second, loss = adamw_step(weights, first, second, windows, step, rate)
        recent.append(float(loss))
        if step % 100 == 0 or step == 10:
            print(f"step {step}: loss {np.mean(recent[-100:]):.3f}, "
                  f"{time.time() - started:.0f} s", flush=True)

    stored = {n: np.asarray(w).astype(ml_dtypes.bfloat16) for n, w in weights.items()}
    write_safetensors(arguments.out / "model.safetensors", stored)
    rounded = {n: jnp.asarray(w.astype(np.float32)) for n, w in stored.items()}
    loss = mean_loss(rounded, held_out.reshape(-1, CONTEXT + 1))
    print(f"held-out loss per token of the stored weights: {float(loss):.4f}")


if __name__ == "__main__":
    main()
