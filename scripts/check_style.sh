#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks every tracked source file's form: clang-format, ASCII, at most 600 lines, SPDX line first.
# With no argument it checks this repository; a test passes another root with seeded faults.
set -uo pipefail
cd "${1:-$(dirname "$0")/..}" || exit 2

max_lines=600
faults=0
complain() {
  echo "check_style: $*"
  faults=$((faults + 1))
}

# Tracked files, or every file where there is no repository (a source archive).
list_files() {
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1 && [[ -n "$(git ls-files | head -1)" ]]; then
    git ls-files
  else
    find . -type f -not -path './build*' -not -path './.git/*' | sed 's|^\./||'
  fi
}
mapfile -t all < <(list_files | sort)

cpp=()
text=()
for file in "${all[@]}"; do
  [[ -f $file ]] || continue
  case $file in
    tests/data/* | tests/fuzz/corpus/* | docs/generated/* | bench/results/*) continue ;;
    *.cpp | *.hpp) cpp+=("$file") text+=("$file") ;;
    *.py | *.sh | *.cmake | *.in | CMakeLists.txt | */CMakeLists.txt) text+=("$file") ;;
  esac
done
if [[ ${#cpp[@]} -eq 0 ]]; then
  echo "check_style: no C++ files found"
  exit 2
fi

for file in "${text[@]}"; do
  first=$(head -n 1 "$file")
  [[ $first == '#!'* ]] && first=$(sed -n 2p "$file")
  [[ $first == *'SPDX-License-Identifier: Apache-2.0' ]] ||
    complain "$file: the first line must be the SPDX line"
done
for file in "${cpp[@]}"; do
  lines=$(wc -l <"$file")
  [[ $lines -le $max_lines ]] || complain "$file: $lines lines; at most $max_lines. Split it."
  if LC_ALL=C grep -nP '[^\x00-\x7F]' "$file" | head -n 3 | cut -c1-100; [[ ${PIPESTATUS[0]} -eq 0 ]]; then
    complain "$file: characters outside ASCII (above)"
  fi
done
if command -v clang-format >/dev/null; then
  printf '%s\0' "${cpp[@]}" |
    xargs -0 -n 40 -P "$(nproc)" clang-format --dry-run -Werror || complain "clang-format: see above"
else
  complain "clang-format is not installed (Debian: clang-format)"
fi

echo "check_style: ${#text[@]} files, $faults faults"
[[ $faults -eq 0 ]]
