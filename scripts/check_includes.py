#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks who includes whom (ARCHITECTURE.md, "Include rules") and prints each offending arrow.

It reads #include lines only; it does not compile. Its own test: tests/cli/check_includes_test.py.
"""

import argparse
import pathlib
import re
import sys

SOURCE_SUFFIXES = {".hpp", ".cpp", ".h", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

# Headers of the C++ and C standard library that this project uses have no slash and no suffix; the
# rest of what is not ours must be named here.
POSIX_HEADERS = {"dlfcn.h", "elf.h", "fcntl.h", "poll.h", "sched.h", "signal.h", "spawn.h", "stdlib.h", "unistd.h", "immintrin.h", "cpuid.h", "malloc.h", "xmmintrin.h"}
FORMAT = ("fmt/",)
VECTOR = ("hwy/",)
JSON = ("nlohmann/",)
ARGUMENTS = ("CLI/",)
UNICODE = ("utf8proc.h",)
TESTING = ("gtest/", "gmock/")
BLAS = ("cblas.h",)

# Outside headers of a folder that may not even include the standard library.
NOTHING = None
CONTRACT = ["include/octavo/dtype.hpp", "include/octavo/scale.hpp"]

# Folder -> (folders of this repository that it may include besides itself, outside headers).
# The longest matching folder counts. "include/octavo/error.hpp" style entries name one file.
RULES = {
    "include/octavo": ([], ()),
    "kernels/contract": (CONTRACT, NOTHING),
    "kernels/ptx": (CONTRACT + ["kernels/contract"], NOTHING),
    "kernels/gemm": (CONTRACT + ["kernels/contract", "kernels/ptx"], NOTHING),
    "kernels/quantize": (CONTRACT + ["kernels/contract", "kernels/ptx"], NOTHING),
    "kernels/naive": (CONTRACT + ["kernels/contract", "kernels/ptx"], NOTHING),
    "src/base": (["include/octavo/error.hpp"], FORMAT),
    "src/numerics": (["src/base", "include/octavo"], FORMAT + VECTOR),
    "src/backend": (["src/base", "include/octavo"], FORMAT),
    "src/backend/registry.cpp": (
        ["src/backend", "src/base", "include/octavo", "src/cpu", "src/cuda"], FORMAT),
    "src/cpu": (["src/base", "src/numerics", "src/backend", "include/octavo"], FORMAT + VECTOR),
    "src/naming": (["kernels/contract", "src/base", "include/octavo"], FORMAT),
    "src/name_effect": (["src/base", "include/octavo"], FORMAT),
    "src/cuda": (["src/cuda", "kernels/contract", "src/naming", "src/base", "src/backend",
                  "include/octavo"], FORMAT),
    "src/cuda/plan": (["kernels/contract", "src/base", "src/naming", "include/octavo",
                       "src/backend/group_problem.hpp"], FORMAT),
    "src/cuda/jit": (["kernels/contract", "src/base", "src/naming", "include/octavo",
                      "src/cuda/driver.hpp"], FORMAT),
    "src/cuda/launch": (["kernels/contract", "src/base", "include/octavo",
                         "src/cuda/driver.hpp", "src/cuda/plan", "src/cuda/jit/loaded_kernel.hpp",
                         "src/cuda/jit/gemm_source.hpp", "src/backend/group_problem.hpp"], FORMAT),
    "src/cuda/tune": (["src/cuda", "kernels/contract", "src/naming", "src/base", "src/backend",
                       "include/octavo"], FORMAT),
    "src/api": (["src/backend", "src/base", "include/octavo"], FORMAT),
    "llm": (["include/octavo"], FORMAT + JSON + UNICODE),
    "measure": (["include/octavo"], FORMAT),
    "tools": (["include/octavo", "llm", "measure"], FORMAT + JSON),
    # CLI11's headers take seconds to compile.
    "tools/octavo/main.cpp": (["include/octavo", "tools"], FORMAT + ARGUMENTS),
    "tools/octavo/options.cpp": (["include/octavo", "tools"], FORMAT + ARGUMENTS),
    "bench": (["include/octavo", "llm", "measure"], FORMAT + JSON + ARGUMENTS + BLAS),
    # It also times kernels that a plan did not choose.
    "bench/gpu_grouped_bench.cpp": (["include/octavo", "measure", "src/cuda"],
                                    FORMAT + JSON + ARGUMENTS),
    "examples": (["include/octavo"], ()),
    "tests": (["src", "llm", "include/octavo", "kernels/contract",
               "kernels/naive/naive_gemm_params.hpp"], FORMAT + VECTOR + JSON + TESTING),
}

# Where a quoted or angled path is looked up, in the order of the build's include folders.
ROOTS = ["include", "src", "tests", ""]


def rule_of(path):
    """The longest folder (or file) of RULES that holds the path."""
    best = None
    for folder in RULES:
        if path == folder or path.startswith(folder + "/"):
            if best is None or len(folder) > len(best):
                best = folder
    return best


def home_of(path):
    """The folder that a file belongs to, for the purpose of being included."""
    folders = [f for f in RULES if not f.endswith(".cpp")]
    homes = [f for f in folders if path.startswith(f + "/")]
    return max(homes, key=len) if homes else None


def resolve(root, includer, target):
    """The included file's path in the repository, or None if it is not one of ours."""
    beside = (root / includer).parent / target
    if beside.is_file():
        return beside.resolve().relative_to(root.resolve()).as_posix()
    for prefix in ROOTS:
        candidate = root / prefix / target
        if candidate.is_file():
            return (pathlib.PurePosixPath(prefix) / target).as_posix()
    return None


def is_standard(target):
    return ("/" not in target and "." not in target) or target.startswith("sys/")


def is_embedded_name(included, target):
    """Whether a kernel's compiler, which has only the embedded texts, finds the file by this name."""
    return target == included.removeprefix("include/")


def check_file(root, path):
    folder = rule_of(path)
    if folder is None:
        return []
    allowed, outside = RULES[folder]
    own = home_of(path)
    problems = []
    text = (root / path).read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(2)
        included = resolve(root, path, target)
        if included is not None:
            home = home_of(included)
            fine = (
                home == own
                or included in allowed
                or any(included.startswith(f + "/") for f in allowed)
            )
            if folder.startswith("kernels/"):
                fine = fine and is_embedded_name(included, target)
            shown = included
        else:
            # The public headers must build with nothing but the standard library.
            fine = outside is not NOTHING and (is_standard(target) or (
                folder != "include/octavo"
                and (target in POSIX_HEADERS or target.startswith(outside or ("\0",)))
            ))
            shown = f"<{target}>"
        if not fine:
            may = ", ".join(list(allowed) + list(outside or ())) or "the standard library only"
            if folder.startswith("kernels/"):
                may += " (headers of include as <octavo/...>, of kernels as \"kernels/...\")"
            problems.append(
                f"{path}:{number}: {folder} -> {shown}: this arrow is not allowed; "
                f"{folder} may include itself and: {may}"
            )
    return problems


def check_tree(root):
    problems = []
    num_files = 0
    for top in sorted({folder.split("/")[0] for folder in RULES}):
        for file in sorted((root / top).rglob("*")):
            if file.suffix in SOURCE_SUFFIXES and file.is_file():
                num_files += 1
                problems += check_file(root, file.relative_to(root).as_posix())
    return num_files, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root
    num_files, problems = check_tree(root)
    for problem in problems:
        print(problem)
    if num_files == 0:
        print(f"{root}: no source files found")
        return 1
    print(f"check_includes: {num_files} files, {len(problems)} forbidden arrows")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
