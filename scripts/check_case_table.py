#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every test named in tests/README.md exists, and every case's test is named there.

Names are written as `suite/File.Case`-style CTest names in backticks; a trailing * stands for any
ending. The list of tests that exist comes from the sources, so that nothing needs to be built.
"""

import pathlib
import re
import sys

NAME = re.compile(r"`([a-z_]+/[A-Za-z0-9_./*]+)`")
GTEST = re.compile(r"^\s*(TEST|TEST_F|TEST_P|TYPED_TEST)\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.M)
CASE_ID = re.compile(r"\b(C\d\d)_")


def existing_tests(root):
    """(folder, Suite.Name) of every test in the sources."""
    tests = set()
    for file in sorted((root / "tests").rglob("*.cpp")):
        folder = file.relative_to(root / "tests").parts[0]
        for _, suite, name in GTEST.findall(file.read_text(encoding="utf-8")):
            tests.add((folder, f"{suite}.{name}"))
    for file in sorted((root / "tests/cli").glob("*_test.py")):
        for name in re.findall(r"def test_(\w+)", file.read_text(encoding="utf-8")):
            tests.add(("cli", f"{file.stem}.{name}"))
    return tests


def check(root):
    text = (root / "tests/README.md").read_text(encoding="utf-8")
    tests = existing_tests(root)
    problems = []
    named = set()
    for full in NAME.findall(text):
        folder, name = full.split("/", 1)
        if not (root / "tests" / folder).is_dir():
            continue  # a file elsewhere in the repository
        if name.endswith("*"):
            found = {t for t in tests if t[0] == folder and t[1].startswith(name[:-1])}
        else:
            found = {t for t in tests if t == (folder, name)}
        if not found:
            problems.append(f"tests/README.md names {full}; no such test exists")
        named |= found
    for folder, name in sorted(tests):
        if CASE_ID.search(name) and (folder, name) not in named:
            problems.append(f"{folder}/{name} is a case's test; tests/README.md does not name it")
    if not named:
        problems.append("tests/README.md names no test at all")
    return named, problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    root = root if root.is_dir() else root.parent.parent
    named, problems = check(root)
    for problem in problems:
        print(problem)
    print(f"check_case_table: {len(named)} tests named, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
