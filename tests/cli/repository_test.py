#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the repository says about itself: documents that must agree with the code, and that the
scripts which check it notice seeded faults."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import python_suite

COMMAND = os.environ.get("OCTAVO_COMMAND", "")
ROOT = pathlib.Path(os.environ.get("OCTAVO_SOURCE_DIR", "."))


def run(*command, cwd=None):
    return subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, cwd=cwd, timeout=250, check=False)


class RepositoryTest(unittest.TestCase):
    def in_tree(self, files):
        """A temporary tree with these files."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, text in files.items():
            path = pathlib.Path(folder.name) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return folder.name

    # --- generated documents

    def test_the_page_on_kernel_names_is_what_its_results_say(self):
        results = sorted((ROOT / "bench/results").glob("*-kernel_names.json"),
                         key=lambda path: ("h200" not in path.name, path.name))
        self.assertGreater(len(results), 1)
        page = run(sys.executable, ROOT / "scripts/kernel_names_page.py", *results)
        self.assertEqual(page.returncode, 0, page.stdout)
        self.assertEqual(page.stdout, (ROOT / "docs/kernel_names.md").read_text(encoding="utf-8"))

    # --- include rules

    def test_include_rules_hold(self):
        result = run(sys.executable, ROOT / "scripts/check_includes.py")
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_include_rules_notice_seeded_violations(self):
        headers = {"include/octavo/error.hpp": "", "include/octavo/gemm.hpp": "",
                   "src/base/hash.hpp": "", "src/cpu/blocked.hpp": "", "src/cuda/driver.hpp": "",
                   "src/api/validate.hpp": "", "src/backend/backend.hpp": "", "llm/model.hpp": "",
                   "src/numerics/codec.hpp": "", "tools/octavo/session.hpp": "",
                   "include/octavo/dtype.hpp": "", "kernels/contract/config.hpp": "",
                   "kernels/quantize/chunk.cuh": "", "kernels/gemm/mainloop.cuh": "",
                   "src/cuda/plan/plan.hpp": "", "src/cuda/jit/cache.hpp": "",
                   "src/cuda/launch/launch.hpp": "", "src/naming/name.hpp": ""}
        forbidden = [
            ("include/octavo/bad.hpp", "<cuda_runtime.h>"), ("include/octavo/bad.hpp", "<fmt/core.h>"),
            ("include/octavo/bad.hpp", '"base/hash.hpp"'), ("include/octavo/bad.hpp", "<unistd.h>"),
            ("src/base/bad.cpp", '"octavo/gemm.hpp"'), ("src/base/bad.cpp", '"cpu/blocked.hpp"'),
            ("src/numerics/bad.cpp", '"cpu/blocked.hpp"'), ("src/cpu/bad.cpp", '"cuda/driver.hpp"'),
            ("src/cpu/bad.cpp", '"api/validate.hpp"'), ("src/cuda/bad.cpp", '"cpu/blocked.hpp"'),
            ("src/cuda/bad.cpp", '"../cpu/blocked.hpp"'), ("src/api/bad.cpp", '"cpu/blocked.hpp"'),
            ("src/backend/bad.cpp", '"cpu/blocked.hpp"'), ("src/api/bad.cpp", "<nlohmann/json.hpp>"),
            ("llm/bad.cpp", '"base/hash.hpp"'), ("llm/bad.cpp", '"src/base/hash.hpp"'),
            ("tools/octavo/bad.cpp", '"numerics/codec.hpp"'), ("llm/bad.cpp", '"tools/octavo/session.hpp"'),
            ("tools/octavo/bad.cpp", "<cublasLt.h>"), ("tools/octavo/bad.cpp", "<CLI/CLI.hpp>"),
            ("examples/bad.cpp", '"llm/model.hpp"'), ("tests/bad.cpp", '"tools/octavo/session.hpp"'),
            ("tests/bad.cpp", "<torch/torch.h>"),
            ("kernels/contract/bad.hpp", "<cstdint>"), ("kernels/gemm/bad.cuh", "<cuda_fp8.h>"),
            ("kernels/contract/bad.hpp", "<octavo/gemm.hpp>"),
            ("kernels/ptx/bad.cuh", '"kernels/gemm/mainloop.cuh"'),
            ("kernels/quantize/bad.cuh", '"kernels/gemm/mainloop.cuh"'),
            ("kernels/naive/bad.cuh", '"kernels/quantize/chunk.cuh"'),
            ("kernels/gemm/bad.cuh", '"mainloop.cuh"'),
            ("kernels/gemm/bad.cuh", '"include/octavo/dtype.hpp"'),
            ("src/naming/bad.cpp", '"cuda/plan/plan.hpp"'),
            ("src/cuda/plan/bad.cpp", '"cuda/jit/cache.hpp"'),
            ("src/cuda/plan/bad.cpp", "<cuda.h>"), ("src/cuda/jit/bad.cpp", '"cuda/plan/plan.hpp"'),
            ("src/cuda/jit/bad.cpp", '"kernels/gemm/mainloop.cuh"'),
            ("src/cuda/launch/bad.cpp", '"cuda/jit/cache.hpp"'),
            ("src/cuda/launch/bad.cpp", '"cuda/tune/tune.hpp"'),
            ("src/api/bad.cpp", '"cuda/plan/plan.hpp"'), ("tests/bad.cpp", '"kernels/gemm/mainloop.cuh"'),
        ]
        for path, target in forbidden:
            tree = self.in_tree({**headers, path: f"// comment\n#  include {target}\n"})
            result = run(sys.executable, ROOT / "scripts/check_includes.py", tree)
            self.assertEqual(result.returncode, 1, f"{path} -> {target}\n{result.stdout}")
            self.assertIn(f"{path}:2:", result.stdout)
            self.assertIn("->", result.stdout)

    def test_include_rules_allow_what_they_should(self):
        tree = self.in_tree({
            "include/octavo/error.hpp": "#include <string>\n", "include/octavo/gemm.hpp": "",
            "src/base/hash.hpp": '#include "octavo/error.hpp"\n', "src/numerics/codec.hpp": "",
            "src/backend/backend.hpp": '#include "octavo/gemm.hpp"\n', "src/cpu/cpu.hpp": "",
            "src/cpu/a.cpp": '#include "numerics/codec.hpp"\n#include "cpu/cpu.hpp"\n'
                             "#include <hwy/highway.h>\n#include <fmt/format.h>\n",
            "src/backend/registry.cpp": '#include "cpu/cpu.hpp"\n',
            "llm/model.hpp": '#include "octavo/gemm.hpp"\n',
            "tools/octavo/verb.cpp": '#include "llm/model.hpp"\n',
            "tools/octavo/main.cpp": "#include <CLI/CLI.hpp>\n",
            "include/octavo/dtype.hpp": "",
            "kernels/contract/config.hpp": "#include <octavo/dtype.hpp>\n",
            "kernels/ptx/mma.cuh": '#include "kernels/contract/config.hpp"\n',
            "kernels/gemm/gemm.cuh": '#include <octavo/dtype.hpp>\n#include "kernels/ptx/mma.cuh"\n',
            "src/naming/name.hpp": '#include "kernels/contract/config.hpp"\n',
            "src/cuda/plan/plan.hpp": '#include "naming/name.hpp"\n',
            "src/cuda/jit/loaded_kernel.hpp": "#include <fcntl.h>\n",
            "src/cuda/launch/launch.hpp": '#include "cuda/jit/loaded_kernel.hpp"\n',
            "src/cuda/cuda_backend.cpp": '#include "cuda/plan/plan.hpp"\n'
                                         '#include "cuda/launch/launch.hpp"\n',
            "tests/cpu/t.cpp": '#include "cpu/cpu.hpp"\n#include "kernels/contract/config.hpp"\n'
                               '#include <gtest/gtest.h>\n'})
        result = run(sys.executable, ROOT / "scripts/check_includes.py", tree)
        self.assertEqual(result.returncode, 0, result.stdout)

    # --- embedded kernels

    def embed(self, files):
        tree = self.in_tree(files)
        output = pathlib.Path(tree) / "build/embedded.cpp"
        result = run(sys.executable, ROOT / "scripts/embed_kernels.py", "--root", tree,
                     "--output", output, *files)
        return result, output.read_text(encoding="ascii") if output.exists() else ""

    def test_embedded_kernels_hold_every_byte(self):
        # Longer than compilers take a string literal, with what literals would have to escape.
        files = {"kernels/gemm/long.cuh": 'R"(\\ "quoted" )" ??/ \t\n' * 10000,
                 "kernels/contract/empty.hpp": "", "include/octavo/dtype.hpp": "no newline at the end"}
        result, text = self.embed(files)
        self.assertEqual(result.returncode, 0, result.stdout)
        arrays = [bytes(int(value) for value in numbers.split(","))
                  for numbers in re.findall(r"constexpr char \w+\[\] = \{([^}]*)\}", text)]
        rows = re.findall(r'\{"([^"]+)", \{kText(\d+), (\d+)\}\}', text)
        self.assertEqual([name for name, _, _ in rows],
                         ["kernels/contract/empty.hpp", "kernels/gemm/long.cuh", "octavo/dtype.hpp"])
        for name, index, size in rows:
            original = files["include/" + name if name.startswith("octavo/") else name]
            self.assertEqual(arrays[int(index)], original.encode("ascii") + b"\0")
            self.assertEqual(int(size), len(original))

    def test_embedding_refuses_what_compilers_would_misread(self):
        for text in ("// fine\n// caf\u00e9\n", "// fine\n// \0\n"):
            result, output = self.embed({"kernels/gemm/bad.cuh": text})
            self.assertEqual(result.returncode, 1)
            self.assertIn("kernels/gemm/bad.cuh:2:", result.stdout)
            self.assertEqual(output, "")

    # --- style

    def test_style_notices_seeded_faults(self):
        spdx = "// SPDX-License-Identifier: Apache-2.0\n"
        good = {".clang-format": (ROOT / ".clang-format").read_text(encoding="utf-8"),
                "src/a.cpp": spdx + "int f() { return 1; }\n"}
        result = run(ROOT / "scripts/check_style.sh", self.in_tree(good))
        self.assertEqual(result.returncode, 0, result.stdout)
        faults = {
            "SPDX": {"src/b.cpp": "int g() { return 1; }\n"},
            "outside ASCII": {"src/b.cpp": spdx + "// caf\u00e9\n"},
            "at most 600": {"src/b.cpp": spdx + "// line\n" * 600},
        }
        if shutil.which("clang-format"):
            faults["clang-format"] = {"src/b.cpp": spdx + "int   g( ){return 1;}\n"}
        for message, files in faults.items():
            result = run(ROOT / "scripts/check_style.sh", self.in_tree({**good, **files}))
            self.assertEqual(result.returncode, 1, f"{message}\n{result.stdout}")
            self.assertIn(message, result.stdout)

    # --- documents

    def test_readme_example_is_the_compiled_one(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        blocks = re.findall(r"```cpp\n(.*?)```", readme, re.S)
        source = (ROOT / "examples/gemm.cpp").read_text(encoding="utf-8")
        self.assertEqual(len(blocks), 1)
        self.assertEqual(blocks[0], source[source.index("#include <cstdio>"):])

    def test_generated_documents_are_fresh(self):
        if not COMMAND:
            self.skipTest("the command is not built")
        with tempfile.TemporaryDirectory() as folder:
            result = run(ROOT / "scripts/generate_docs.sh", COMMAND, folder)
            self.assertEqual(result.returncode, 0, result.stdout)
            names = sorted(os.listdir(folder))
            self.assertEqual(names, sorted(os.listdir(ROOT / "docs/generated")))
            for name in names:
                fresh = (pathlib.Path(folder) / name).read_text(encoding="utf-8")
                kept = (ROOT / "docs/generated" / name).read_text(encoding="utf-8")
                self.assertEqual(fresh, kept, f"docs/generated/{name} is stale; run "
                                 "scripts/generate_docs.sh build/dev/octavo")

    def test_generated_wgmma_is_fresh(self):
        result = run(ROOT / "scripts/generate_wgmma.py", "--check")
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_links_lead_somewhere(self):
        documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"),
                     *(ROOT / "tests").rglob("*.md"), *(ROOT / "bench").rglob("*.md")]
        for document in documents:
            text = document.read_text(encoding="utf-8")
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
                if "://" in target or target.startswith("mailto:"):
                    continue
                self.assertTrue((document.parent / target).exists(), f"{document}: {target}")

    def test_case_table_names_tests_that_exist(self):
        result = run(sys.executable, ROOT / "scripts/check_case_table.py", ROOT)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_case_table_check_notices_seeded_faults(self):
        sources = {"tests/gemm/gemm_test.cpp": "TEST(Gemm, C22_zero) {}\nTEST(Gemm, other) {}\n"}
        for table, fault in (("| C22 | `gemm/Gemm.C22_zero` |", None),
                             ("| C22 | `gemm/Gemm.C22_*` |", None),
                             ("| C22 | `gemm/Gemm.C22_one` |", "no such test"),
                             ("| | `gemm/Gemm.other` |", "does not name it")):
            tree = self.in_tree({**sources, "tests/README.md": table})
            result = run(sys.executable, ROOT / "scripts/check_case_table.py", tree)
            self.assertEqual(result.returncode, 1 if fault else 0, result.stdout)
            self.assertIn(fault or "0 problems", result.stdout)


if __name__ == "__main__":
    python_suite.main(RepositoryTest)
