#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs every test that this machine can run; ends with what
# was run and what was left out and why. Safe to run again, and quick then.
#   ./test.sh [quick|full]    quick is the default; full adds the long sweeps (tens of minutes)
set -uo pipefail
cd "$(dirname "$0")" || exit 2

level=${1:-quick}
if [[ $# -gt 1 || ($level != quick && $level != full) ]]; then
  echo "usage: ./test.sh [quick|full]" >&2
  exit 2
fi
export OCTAVO_TEST_LEVEL=$level
jobs=$(nproc)

ran=()
failed=()
left_out=()

# step NAME COMMAND...: runs it, remembers how it ended.
step() {
  local name=$1
  shift
  echo
  echo "== $name"
  local begin=$SECONDS
  if "$@"; then
    ran+=("$name ($((SECONDS - begin)) s)")
    return 0
  fi
  failed+=("$name")
  return 1
}

packages=(g++ cmake ninja-build ccache git libhwy-dev libfmt-dev libcli11-dev nlohmann-json3-dev
          libutf8proc-dev libgtest-dev libgmock-dev python3 clang clang-format clang-tidy
          libclang-rt-14-dev)
if ! scripts/install_missing.sh "${packages[@]}"; then
  echo "test.sh: packages are missing and could not be installed (see above)" >&2
  exit 3
fi

# configure_and_build PRESET [TARGET...]
configure_and_build() {
  local preset=$1
  shift
  local targets=()
  [[ $# -gt 0 ]] && targets=(--target "$@")
  cmake --preset "$preset" -DCMAKE_CXX_COMPILER_LAUNCHER=ccache >"build/$preset-configure.log" 2>&1 || {
    cat "build/$preset-configure.log"
    return 1
  }
  cmake --build "build/$preset" -j "$jobs" "${targets[@]}"
}

has_gpu=no
command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 && has_gpu=yes

model=${OCTAVO_MODEL:-${XDG_CACHE_HOME:-$HOME/.cache}/octavo/SmolLM2-135M-Instruct.Q4_1.gguf}
if [[ -f $model ]]; then
  OCTAVO_MODEL=$(realpath "$model") && export OCTAVO_MODEL  # tests run in other folders
else
  unset OCTAVO_MODEL
  left_out+=("SmolLM2 tests: the model is not here; ./quickstart.sh fetches it")
fi

mkdir -p build
# run_suite PRESET LABELS-LEFT-OUT [CTEST-OPTION...]
run_suite() {
  local preset=$1 left_out_labels=$2
  shift 2
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$jobs" \
    --label-exclude "$left_out_labels" "$@"
}

step "include rules" scripts/check_includes.py
step "style" scripts/check_style.sh
if step "build (preset dev)" configure_and_build dev; then
  step "tests (preset dev)" run_suite dev gpu
  if [[ $level == full ]]; then
    step "clang-tidy (src, llm, tools)" scripts/run_clang_tidy.sh build/dev
  else
    mapfile -t library < <(find src -name '*.cpp' | sort)
    step "clang-tidy (src)" scripts/run_clang_tidy.sh build/dev "${library[@]}"
    left_out+=("clang-tidy of llm/ and tools/: level full (./test.sh full)")
  fi
fi

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
sanitized_targets=(all)
sanitized_out=gpu
if [[ $level == quick ]]; then
  sanitized_targets=(octavo_test_suites)
  sanitized_out='gpu|cli|install'
  left_out+=("the command under sanitizers: level full (./test.sh full)")
fi
if step "build (preset asan)" configure_and_build asan "${sanitized_targets[@]}"; then
  step "tests under AddressSanitizer and UndefinedBehaviorSanitizer" run_suite asan "$sanitized_out"
fi
# Only the fuzz targets: the suites ran in the two builds above.
mapfile -t fuzzers < <(basename -s .cpp tests/fuzz/fuzz_*.cpp)
if step "build (preset fuzz)" configure_and_build fuzz "${fuzzers[@]}"; then
  step "fuzz targets, a fixed count of inputs" run_suite fuzz gpu --label-regex fuzz
fi

if [[ $level == quick ]]; then
  left_out+=("sweep of all 2^32 floats and the longer random searches: level full (./test.sh full)")
fi
if [[ $has_gpu == yes ]]; then
  step "GPU tests (preset dev)" ctest --test-dir build/dev --output-on-failure --no-tests=error \
    --label-regex gpu
else
  left_out+=("GPU tests: no GPU here (ctest -L gpu on a machine with an H100 or H200)")
fi

echo
echo "== summary (level $level, $SECONDS s)"
printf 'ran:      %s\n' "${ran[@]}"
printf 'left out: %s\n' "${left_out[@]}"
if [[ ${#failed[@]} -gt 0 ]]; then
  printf 'FAILED:   %s\n' "${failed[@]}"
  exit 1
fi
echo "all green"
