#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy (.clang-tidy) on src/, llm/ and tools/ with the compile commands of a configured
# build folder. A file that passed is not checked again until it, its headers, its compile command
# or the rules change.
#   scripts/run_clang_tidy.sh [BUILD_FOLDER] [FILE...]
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
build=${1:-build/dev}
shift || true
if [[ ! -f $build/compile_commands.json ]]; then
  echo "run_clang_tidy: $build/compile_commands.json is missing; run cmake --preset dev" >&2
  exit 2
fi
passed=$build/clang-tidy-passed
mkdir -p "$passed"

if [[ $# -gt 0 ]]; then
  files=("$@")
else
  mapfile -t files < <(find src llm tools -name '*.cpp' | sort)
fi
# The include graph is approximated by all headers of the project: one changed header means one full
# run, and never a stale pass.
headers=$(find include src llm tools -name '*.hpp' -print0 | sort -z | xargs -0 sha256sum | sha256sum)
rules=$(sha256sum .clang-tidy; clang-tidy --version | sha256sum)

check_one() {
  local file=$1
  local key
  key=$(
    {
      echo "$OCTAVO_TIDY_RULES $OCTAVO_TIDY_HEADERS"
      sha256sum "$file"
      grep -F -- "$file" "$OCTAVO_TIDY_BUILD/compile_commands.json"
    } | sha256sum | cut -c1-40
  )
  [[ -e $OCTAVO_TIDY_PASSED/$key ]] && return 0
  local output
  if output=$(clang-tidy --quiet -p "$OCTAVO_TIDY_BUILD" "$file" 2>/dev/null); then
    echo "$file" >"$OCTAVO_TIDY_PASSED/$key"
    return 0
  fi
  printf '%s\n' "$output"
  return 1
}
export -f check_one
# g++'s precompiled headers and the warnings that only g++ knows mean nothing to clang.
commands=$build/clang-tidy-commands
mkdir -p "$commands"
sed -E 's/ -include [^ ]*cmake_pch\.hxx//g; s/ -Wno-(restrict|stringop-overflow)//g' \
  "$build/compile_commands.json" >"$commands/compile_commands.json"
export OCTAVO_TIDY_BUILD=$commands OCTAVO_TIDY_PASSED=$passed
export OCTAVO_TIDY_HEADERS=$headers OCTAVO_TIDY_RULES=$rules

printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c 'check_one "$0"'
status=$?
echo "run_clang_tidy: ${#files[@]} files, $([[ $status -eq 0 ]] && echo clean || echo 'findings above')"
[[ $status -eq 0 ]]
