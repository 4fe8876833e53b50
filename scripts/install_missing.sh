#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs those of the named Debian packages that are missing, and says which.
# Exit 3 if it cannot: not a Debian-like system, or neither root nor sudo.
set -euo pipefail

missing=()
for package in "$@"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "These Debian packages (or their equals on this system) are needed: ${missing[*]}" >&2
  echo "apt-get was not found; install them by hand and run this again." >&2
  exit 3
fi
as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "These packages are missing: ${missing[*]}" >&2
    echo "Installing needs root or sudo. As root: apt-get install ${missing[*]}" >&2
    exit 3
  fi
  as_root=(sudo)
fi
echo "== installing with apt: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
