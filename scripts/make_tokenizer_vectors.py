#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tokenizer's test vectors: what PyPI's `tokenizers` makes of multilingual text.

The texts are in tests/data/tokenizer/texts.json, written for this project. Each run takes one
vocabulary and writes, for every text, the ids, and for a pre-tokenizer the lengths in bytes of the
words as well. Compare with tests/tokenizer/vectors_test.cpp.

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3 gguf==0.19.0
    venv/bin/python scripts/make_tokenizer_vectors.py tests/data/tiny_llama/tokenizer.json
    venv/bin/python scripts/make_tokenizer_vectors.py SmolLM2-135M-Instruct.Q4_1.gguf

For a tokenizer.json the vocabulary is tried under all three pre-tokenizers; a GGUF has its own.
"""
import argparse
import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "tokenizer"
LLAMA3_REGEX = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
                r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CONTROL, USER_DEFINED = 3, 4  # token types of GGUF


def pre_tokenizer(name):
    def byte_level(use_regex):
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)

    if name == "gpt-2":
        return byte_level(True)
    if name == "smollm":
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), byte_level(True)])
    if name == "llama-bpe":
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(LLAMA3_REGEX), "isolated"), byte_level(False)])
    raise ValueError(f"pre-tokenizer {name!r} is not known")


def from_gguf(path):
    import gguf
    fields = gguf.GGUFReader(path).fields

    def value(key):
        return fields["tokenizer.ggml." + key].contents()

    tokens, merges = value("tokens"), [tuple(m.split(" ")) for m in value("merges")]
    unknown = tokens[value("unknown_token_id")]
    model = models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, unk_token=unknown)
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoders.ByteLevel()
    types = value("token_type")
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False)
                                  for t, kind in zip(tokens, types) if kind == CONTROL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False)
                          for t, kind in zip(tokens, types) if kind == USER_DEFINED])
    return tokenizer, [value("pre")]


def word_lengths(name, text):
    """The lengths in bytes of the words, from the characters of the byte alphabet they become."""
    return [len(word) for word, _ in pre_tokenizer(name).pre_tokenize_str(text)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vocabulary", help="a tokenizer.json or a GGUF")
    arguments = parser.parse_args()
    if arguments.vocabulary.endswith(".gguf"):
        tokenizer, names = from_gguf(arguments.vocabulary)
        stem = "smollm2"
    else:
        tokenizer = Tokenizer.from_file(arguments.vocabulary)
        names, stem = ["gpt-2", "smollm", "llama-bpe"], "tiny"
    texts = json.loads((DATA / "texts.json").read_text(encoding="utf-8"))["texts"]
    for name in names:
        tokenizer.pre_tokenizer = pre_tokenizer(name)
        vectors = []
        for entry in texts:
            ids = tokenizer.encode(entry["text"], add_special_tokens=False).ids
            vector = {"name": entry["name"], "ids": ids}
            if stem == "tiny":
                vector["words"] = word_lengths(name, entry["text"])
            vectors.append(vector)
        out = DATA / f"{stem}_{name}.json"
        rows = ",\n".join(json.dumps(v, separators=(",", ":")) for v in vectors)
        out.write_text(f'{{"pre_tokenizer":"{name}","vectors":[\n{rows}\n]}}\n')
        print(f"{out}: {len(vectors)} texts")


if __name__ == "__main__":
    main()
