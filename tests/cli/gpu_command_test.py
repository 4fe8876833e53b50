#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The octavo command on a GPU: what runs there, that its bits are checked, and what it says where a part is missing."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import python_suite

COMMAND = os.environ.get("OCTAVO_COMMAND", "")
SOURCE = pathlib.Path(os.environ.get("OCTAVO_SOURCE_DIR", "."))
SUCCESS, CHECK_FAILED, BAD_USAGE, ENVIRONMENT = 0, 1, 2, 3


def octavo(*arguments, env=None):
    environment = dict(os.environ)
    environment.pop("OCTAVO_BACKEND", None)
    environment.update(env or {})
    return subprocess.run([COMMAND, *map(str, arguments), "--json"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env=environment, timeout=250,
                          check=False)


class GpuCommandTest(unittest.TestCase):
    def setUp(self):
        gpus = json.loads(octavo("doctor").stdout)["gpus"]
        if not any(gpu["usable"] for gpu in gpus):
            self.skipTest("no GPU of compute capability 9.0 here")

    def json_of(self, *arguments, code=SUCCESS, env=None):
        result = octavo(*arguments, env=env)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return json.loads(result.stdout)

    def test_products_run_on_the_gpu_and_are_the_emulations_bits(self):
        for options in (["--recipe", "block"], ["--recipe", "row", "--accumulation", "fast"],
                        ["--recipe", "tensor", "--d-dtype", "bf16", "--bias"],
                        ["--recipe", "block1d", "--accumulate"], ["--d-dtype", "e4m3"],
                        ["--scales", "ue8m0", "--data", "positive"], ["--batch", 2],
                        ["--a-dtype", "e5m2", "--d-dtype", "f16"]):
            document = self.json_of("run", "gemm", "--m", 131, "--n", 264, "--k", 333, *options,
                                    "--repeat", 2)
            self.assertEqual(document["backend"], "cuda", options)
            self.assertEqual(document["clock"], "gpu events")
            self.assertEqual(document["different_from_emulation"], 0, options)
            self.assertTrue(document["within_bound"], options)
            self.assertEqual(document["checked_rows"], 131)
        for m, n, k in ((0, 8, 64), (8, 0, 64), (8, 8, 0), (1, 1, 1)):
            document = self.json_of("run", "gemm", "--m", m, "--n", n, "--k", k, "--bias")
            self.assertEqual((document["backend"], document["within_bound"]), ("cuda", True))

    def test_what_the_gpu_does_not_serve_runs_on_the_cpu_unless_named(self):
        splits = ["run", "gemm", "--k", 2048, "--splits", 9]
        self.assertEqual(self.json_of(*splits)["backend"], "cpu")
        self.assertEqual(self.json_of("run", "gemm", "--numerics", "emulated")["backend"], "cpu")
        self.assertEqual(self.json_of("run", "gemm", env={"OCTAVO_BACKEND": "cpu"})["backend"], "cpu")
        refused = self.json_of(*splits, "--backend", "cuda", code=ENVIRONMENT)
        self.assertIn("num_splits", refused["error"]["message"])

    def test_quantize(self):
        for granularity in ("tensor", "row", "1x128", "128x128"):
            document = self.json_of("run", "quantize", "--rows", 200, "--cols", 333, "--x-dtype",
                                    "bf16", "--granularity", granularity)
            self.assertEqual(document["backend"], "cuda")
            self.assertTrue(document["equal_to_definition"])

    def test_explain_and_warmup(self):
        document = self.json_of("explain", "gemm", "--m", 4096, "--n", 7168, "--k", 2048)
        self.assertEqual(document["chosen"], "cuda")
        kernel = document["plan"]["candidates"][0]["kernel"]
        self.assertEqual(document["backends"][0]["kernel"], kernel)
        suite = {"suite": "one", "problems": [{"op": "gemm", "m": 4096, "n": 7168, "k": 2048}]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "one.json")
            path.write_text(json.dumps(suite), encoding="utf-8")
            warm = self.json_of("warmup", path, env={"OCTAVO_CACHE_DIR": folder + "/cache"})
            self.assertEqual(warm["problems"][0], {**warm["problems"][0], "kernel": kernel,
                                                   "error": ""})

    def test_bench(self):
        suite = {"suite": "one", "problems": [{"op": "gemm", "m": 256, "n": 512, "k": 1024}]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "one.json")
            path.write_text(json.dumps(suite), encoding="utf-8")
            out = pathlib.Path(folder, "result.json")
            document = self.json_of("bench", path, "--out", out, "--rounds", 2, "--window-ms", 5,
                                    "--contenders", "octavo_block,octavo_row_fast", "--commit", "x")
            self.assertEqual(json.loads(out.read_text(encoding="utf-8")), document)
            self.assertEqual((document["schema"], document["commit"]), (1, "x"))
            self.assertIn("H", document["machine"]["gpu"])
            rows = {row["contender"]: row for row in document["rows"]}
            self.assertEqual(set(rows), {"cublaslt_tensor_fast", "octavo_block", "octavo_row_fast"})
            for name in ("octavo_block", "octavo_row_fast"):
                self.assertGreater(rows[name]["tflops"], 1)
                self.assertEqual(rows[name]["error"]["num_different_from_emulation"], 0)
            self.json_of("bench", path, "--threads", 2, code=BAD_USAGE)
            self.json_of("bench", path, "--contenders", "nobody", code=BAD_USAGE)
            self.json_of("bench", path, "--backend", "cpu", "--rounds", 2, code=BAD_USAGE)

    def test_a_description_of_the_gpu_can_be_planned_for_again(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "gpu.json")
            gpu = self.json_of("doctor", "--device-out", path)["gpus"][0]
            document = self.json_of("explain", "gemm", "--device-file", path,
                                    env={"CUDA_VISIBLE_DEVICES": ""})
            self.assertEqual(document["chosen"], "cuda")
            self.assertEqual(document["plan"]["gpu"]["name"], gpu["name"])

    def test_a_cache_that_cannot_be_written_costs_only_time(self):
        document = self.json_of("run", "gemm", env={"OCTAVO_CACHE_DIR": "/dev/null/x"})
        self.assertEqual((document["backend"], document["within_bound"]), ("cuda", True))


if __name__ == "__main__":
    python_suite.main(GpuCommandTest)
