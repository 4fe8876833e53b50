#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The octavo command without a GPU: outputs, exit codes, and that --json prints one document and nothing else."""

import hashlib
import json
import math
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

import python_suite

COMMAND = os.environ.get("OCTAVO_COMMAND", "")
SOURCE = pathlib.Path(os.environ.get("OCTAVO_SOURCE_DIR", "."))
SUCCESS, CHECK_FAILED, BAD_USAGE, ENVIRONMENT = 0, 1, 2, 3
PRODUCT = ["run", "gemm", "--m", "33", "--n", "40", "--k", "300"]


def octavo(*arguments, env=None, stdout=subprocess.PIPE):
    environment = dict(os.environ)
    environment.pop("OCTAVO_BACKEND", None)
    environment["CUDA_VISIBLE_DEVICES"] = ""  # with a GPU: gpu_command_test.py
    environment.update(env or {})
    return subprocess.run([COMMAND, *map(str, arguments)], stdout=stdout, stderr=subprocess.PIPE,
                          text=True, env=environment, timeout=250, check=False)


class CommandTest(unittest.TestCase):
    def json_of(self, *arguments, code=SUCCESS, env=None):
        """The one JSON document on stdout; anything beside it fails."""
        result = octavo(*arguments, "--json", env=env)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return json.loads(result.stdout)

    def fails(self, code, pattern, *arguments, env=None):
        """Exit code and message on stderr, and the same with --json as a document."""
        result = octavo(*arguments, env=env)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.assertRegex(result.stderr, pattern)
        self.assertEqual(result.stdout, "")
        document = self.json_of(*arguments, code=code, env=env)
        self.assertRegex(document["error"]["message"], pattern)
        self.assertEqual(list(document), ["error"])

    # --- the command as a whole

    def test_version_and_help(self):
        self.assertEqual(octavo("--version").stdout.strip(), os.environ["OCTAVO_TEST_VERSION"])
        for arguments in (["--help"], ["cast", "--help"], ["run", "gemm", "--help"]):
            result = octavo(*arguments)
            self.assertEqual(result.returncode, SUCCESS)
            self.assertIn("--help", result.stdout)

    def test_bad_usage_exits_2(self):
        self.fails(BAD_USAGE, "subcommand is required")
        self.fails(BAD_USAGE, "nonsense", "nonsense")
        self.fails(BAD_USAGE, "--nonsense", "doctor", "--nonsense")
        self.fails(BAD_USAGE, "must be one of backends|", "list", "nonsense")

    def test_numbers_are_strict_and_bounded(self):
        for value in ("1e9", "-5", "12x", "", " 3", "99999999999999999999999", "16777217", "0x10"):
            self.fails(BAD_USAGE, r"--m: .* must be a whole number from 0 to 16777216",
                       "run", "gemm", "--m", value)
        self.fails(BAD_USAGE, "--recipe: \"blok\" was given; it must be one of",
                   "run", "gemm", "--recipe", "blok")
        self.fails(BAD_USAGE, "--softcap", "run", "attention", "--softcap", "nan")

    def test_a_full_disk_is_noticed(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            result = octavo("list", "dtypes", stdout=full)
        self.assertEqual(result.returncode, CHECK_FAILED)
        self.assertIn("standard output", result.stderr)

    def test_errors_carry_no_stack_trace(self):
        result = octavo("run", "gemm", "--load", "/nonexistent.safetensors")
        self.assertEqual(result.returncode, BAD_USAGE)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)

    # --- cast

    def test_cast_e4m3_edge_values(self):
        expected = {
            "447": ("0x43df8000", "0x7e", 448), "448": ("0x43e00000", "0x7e", 448),
            "463.9": ("0x43e7f333", "0x7e", 448), "464": ("0x43e80000", "0x7e", 448),
            "464.00003": ("0x43e80001", "0x7e", 448), "480": ("0x43f00000", "0x7e", 448),
            "inf": ("0x7f800000", "0x7e", 448), "-inf": ("0xff800000", "0xfe", -448),
            "nan": ("0x7fc00000", "0x7f", "nan"),
            "0.0009765625": ("0x3a800000", "0x00", 0),
            "0.00097656256": ("0x3a800001", "0x01", 2.0**-9),
            "-0": ("0x80000000", "0x80", 0), "-1": ("0xbf800000", "0xb8", -1),
            "-.5": ("0xbf000000", "0xb0", -0.5),
        }
        rows = self.json_of("cast", "e4m3", *expected)["values"]
        self.assertEqual([row["input"] for row in rows], list(expected))
        for row in rows:
            self.assertEqual((row["fp32_bits"], row["code"], row["value"]), expected[row["input"]])
        text = octavo("cast", "e4m3", *expected).stdout.splitlines()
        self.assertEqual(len(text), len(expected) + 1)
        for line, (value, (bits, code, _)) in zip(text[1:], expected.items()):
            self.assertEqual(line.split()[:3], [value, bits, code])

    def test_cast_other_formats(self):
        cases = [("e5m2", "57344", "0x7b"), ("e5m2", "inf", "0x7b"), ("e5m2", "1.1875", "0x3d"),
                 ("ue8m0", "1", "0x7f"), ("ue8m0", "0.75", "0x7f"), ("ue8m0", "nan", "0xff"),
                 ("bf16", "1", "0x3f80"), ("f16", "65504", "0x7bff"), ("f16", "-2", "0xc000")]
        for dtype, value, code in cases:
            row = self.json_of("cast", dtype, value)["values"][0]
            self.assertEqual(row["code"], code, (dtype, value))

    def test_cast_decode_is_the_inverse(self):
        codes = [f"0x{code:02x}" for code in range(256)]
        decoded = self.json_of("cast", "e4m3", "--decode", *codes)["values"]
        again = self.json_of("cast", "e4m3", *[str(row["value"]) for row in decoded])["values"]
        for before, after in zip(decoded, again):
            if before["value"] == "nan":
                self.assertEqual(after["code"], "0x7f")
            else:
                self.assertEqual(after["code"], before["code"])

    def test_cast_refuses(self):
        self.fails(BAD_USAGE, "\"1x\" is not a number", "cast", "e4m3", "1x")
        self.fails(BAD_USAGE, "codes go from 0x0 to 0xff", "cast", "e4m3", "--decode", "0x100")
        self.fails(BAD_USAGE, "must be one of e4m3", "cast", "e3m4", "1")
        self.fails(BAD_USAGE, "values", "cast", "e4m3")

    # --- doctor, list, explain

    def test_doctor(self):
        document = self.json_of("doctor")
        self.assertEqual([b["name"] for b in document["backends"]], ["cuda", "cpu"])
        self.assertGreater(document["cpu"]["cores"], 0)
        missing = self.json_of("doctor", env={"XDG_CACHE_HOME": "/nonexistent"})["default_model"]
        self.assertFalse(missing["present"])
        self.assertTrue(missing["file"].startswith("/nonexistent/octavo/"), missing)
        self.assertEqual([c["name"] for c in document["cuda_components"]],
                         ["CUDA driver", "NVRTC", "cuBLASLt", "CUPTI", "NCCL"])
        for component in document["cuda_components"]:
            self.assertTrue(component["detail"])
            self.assertIsInstance(component["found"], bool)
        self.assertIsInstance(document["gpus"], list)

    def test_C71_a_compiler_that_does_not_open_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for version in ("12", "13"):
                pathlib.Path(folder, f"libnvrtc.so.{version}").write_text("no library", encoding="utf-8")
            broken = {"LD_LIBRARY_PATH": folder, "OCTAVO_CACHE_DIR": os.path.join(folder, "cache")}
            components = self.json_of("doctor", env=broken)["cuda_components"]
            nvrtc = next(c for c in components if c["name"] == "NVRTC")
            self.assertFalse(nvrtc["found"])
            self.assertIn("libnvrtc.so.13", nvrtc["detail"])
            path = os.path.join(folder, "small.json")
            problem = {"op": "gemm", "m": 64, "n": 256, "k": 256, "recipe": "row"}
            pathlib.Path(path).write_text(json.dumps({"suite": "small", "problems": [problem]}),
                                          encoding="utf-8")
            self.fails(ENVIRONMENT, "libnvrtc.so.13", "warmup", path, "--device-file",
                       SOURCE / "data/devices/h200.json", env=broken)
            self.assertEqual(octavo("run", "gemm", "--backend", "cpu", env=broken).returncode, SUCCESS)

    def test_doctor_looks_at_the_kernel_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = os.path.join(folder, "cubin")
            state = self.json_of("doctor", env={"OCTAVO_CACHE_DIR": cache})["kernel_cache"]
            self.assertEqual(state, {"folder": cache, "writable": True, "files": 0, "bytes": 0,
                                     "damaged": 0, "problem": ""})
            os.mkdir(cache)
            # No name that the cache gives, one that it gives and no kernel, and a file of another kind.
            for name in ("a.cubin", f"octavo_x-{'0' * 32}.cubin", f"octavo_x-{'g' * 32}.cubin",
                         "notes.txt"):
                pathlib.Path(cache, name).write_bytes(b"x" * 1000)
            state = self.json_of("doctor", env={"OCTAVO_CACHE_DIR": cache})["kernel_cache"]
            self.assertEqual((state["files"], state["bytes"], state["damaged"]), (3, 3000, 3))
            # A folder below a file can never be made.
            nowhere = {"OCTAVO_CACHE_DIR": os.path.join(cache, "notes.txt", "below")}
            state = self.json_of("doctor", env=nowhere)["kernel_cache"]
            self.assertFalse(state["writable"])
            self.assertIn("notes.txt cannot be written", state["problem"])
            self.assertIn("OCTAVO_CACHE_DIR", octavo("doctor", env=nowhere).stdout)

    def test_list(self):
        backends = self.json_of("list", "backends")["backends"]
        self.assertEqual([(b["name"], b["available"]) for b in backends],
                         [("cuda", False), ("cpu", True)])
        self.assertEqual([r["name"] for r in self.json_of("list", "recipes")["recipes"]],
                         ["none", "tensor", "row", "block", "block1d"])
        self.assertIn("e4m3", [d["name"] for d in self.json_of("list", "dtypes")["dtypes"]])
        self.assertTrue(self.json_of("list", "errors")["errors"])
        suites = self.json_of("list", "suites", "--folder", SOURCE / "bench/suites")["suites"]
        self.assertIn("cpu_gemm", [suite["name"] for suite in suites])
        self.assertGreater(suites[0]["problems"], 0)
        self.fails(BAD_USAGE, "cannot be read", "list", "suites", "--folder", "/nonexistent")
        with tempfile.TemporaryDirectory() as cache:
            expected = os.path.join(cache, "octavo", "SmolLM2-135M-Instruct.Q4_1.gguf")
            (model,) = self.json_of("list", "models", env={"XDG_CACHE_HOME": cache})["models"]
            self.assertEqual((model["file"], model["present"]), (expected, False))
            os.mkdir(os.path.dirname(expected))
            pathlib.Path(expected).touch()
            (model,) = self.json_of("list", "models", env={"XDG_CACHE_HOME": cache})["models"]
            self.assertTrue(model["present"])

    def test_explain_gemm(self):
        document = self.json_of("explain", "gemm", "--m", 1, "--n", 4096, "--k", 4096)
        self.assertEqual(document["chosen"], "cpu")
        cuda, cpu = document["backends"]
        self.assertFalse(cuda["supported"])
        self.assertEqual(cuda["reasons"][0]["kind"], "environment")
        self.assertIsNone(document["plan"])
        self.assertTrue(cpu["supported"])
        self.assertRegex(cpu["kernel"], "^cpu_blocked_")
        document = self.json_of("explain", "gemm", "--numerics", "emulated", "--a-dtype", "bf16",
                                code=ENVIRONMENT)
        self.assertIsNone(document["chosen"])
        self.assertEqual(document["backends"][1]["reasons"][0]["kind"], "numerics")
        self.fails(BAD_USAGE, "accumulation", "explain", "gemm", "--accumulation", "fast")

    def test_explain_gemm_plans_for_a_recorded_gpu(self):
        device = SOURCE / "data/devices/h200.json"
        document = self.json_of("explain", "gemm", "--m", 4096, "--n", 7296, "--k", 2048,
                                "--d-dtype", "bf16", "--device-file", device)
        self.assertEqual(document["chosen"], "cuda")
        plan = document["plan"]
        self.assertEqual(plan["gpu"]["num_multiprocessors"], 132)
        cycles = [candidate["estimated_cycles"] for candidate in plan["candidates"]]
        self.assertEqual(cycles, sorted(cycles))
        first = plan["candidates"][0]
        self.assertEqual(document["backends"][0]["kernel"], first["kernel"])
        self.assertAlmostEqual(first["estimated_cycles"], first["waves"] * first["tile_cycles"])
        self.assertAlmostEqual(first["estimated_us"], first["estimated_cycles"] / 1300)
        self.assertTrue(any(step.startswith("a_scale: copied to f32") for step in plan["steps"]), plan)
        text = octavo("explain", "gemm", "--k", 300, "--device-file", device).stdout
        self.assertIn("a: repacked", text)
        self.assertIn("recorded", text)
        refused = self.json_of("explain", "gemm", "--a-dtype", "bf16", "--backend", "cuda",
                               "--device-file", device, code=ENVIRONMENT)
        self.assertEqual(refused["backends"][0]["reasons"][0]["field"], "a")
        self.assertIsNone(refused["chosen"])
        self.fails(BAD_USAGE, "--device-file", "explain", "gemm", "--backend", "cpu",
                   "--device-file", device)

    def test_explain_gemm_refuses_bad_device_files(self):
        good = json.loads((SOURCE / "data/devices/h200.json").read_text(encoding="utf-8"))
        faults = [({**good, "num_multiprocessors": 0}, "num_multiprocessors is 0"),
                  ({**good, "num_multiprocessors": 1e9}, "num_multiprocessors is 1000000000.0"),
                  ({**good, "clock_mhz": -1}, "clock_mhz"), ({**good, "name": 3}, "name"),
                  ({**good, "name": "x" * 1000}, "name is no string or too long"),
                  ({**good, "l2_bytes": 2**63}, "l2_bytes"), ({**good, "extra": 1}, "extra"),
                  ({"name": "x"}, "compute_major is missing"), ([], "not an object")]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "device.json")
            for content, pattern in faults:
                pathlib.Path(path).write_text(json.dumps(content), encoding="utf-8")
                self.fails(BAD_USAGE, pattern, "explain", "gemm", "--device-file", path)
            pathlib.Path(path).write_text("[" * 100000, encoding="utf-8")
            self.fails(BAD_USAGE, "nested too deeply", "explain", "gemm", "--device-file", path)
            pathlib.Path(path).write_text(json.dumps({**good, "num_multiprocessors": 1}),
                                          encoding="utf-8")
            refused = self.json_of("explain", "gemm", "--backend", "cuda", "--device-file", path,
                                   code=ENVIRONMENT)
            self.assertEqual(refused["backends"][0]["reasons"][0]["field"], "gpu")
        self.fails(BAD_USAGE, "could not be opened", "explain", "gemm", "--device-file", "/none")

    def test_warmup(self):
        suite = {"suite": "small", "problems": [
            {"op": "gemm", "m": 64, "n": 256, "k": 256, "recipe": "row", "d_dtype": "bf16"},
            {"op": "gemm", "m": 64, "n": 256, "k": 2048, "splits": 9}]}
        components = {c["name"]: c["found"] for c in self.json_of("doctor")["cuda_components"]}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "small.json")
            pathlib.Path(path).write_text(json.dumps(suite), encoding="utf-8")
            arguments = ["warmup", path, "--device-file", SOURCE / "data/devices/h200.json"]
            cache = {"OCTAVO_CACHE_DIR": os.path.join(folder, "cache")}
            if not components["NVRTC"]:
                self.fails(ENVIRONMENT, "libnvrtc", *arguments, env=cache)
                return
            document = self.json_of(*arguments, code=CHECK_FAILED, env=cache)
            fine, refused = document["problems"]
            self.assertEqual((fine["error"], refused["kernel"]), ("", ""))
            self.assertIn("num_splits", refused["error"])
            self.assertEqual([k["kernel"] for k in document["kernels"]], [fine["kernel"]])
            state = self.json_of("doctor", env=cache)["kernel_cache"]
            self.assertEqual((state["files"], state["damaged"]), (1, 0))
            if not components["CUDA driver"]:
                self.fails(ENVIRONMENT, "libcuda.so.1|cuInit", "warmup", path, env=cache)

    def test_names(self):
        kernel = ("octavo_sm90_gemm_rowf32xe4m3_rowf32xe4m3_f32fast_bf16_128x176x128_2x1_s5_u4_tnt_"
                  "pingpong_alongn8")
        fields = self.json_of("names", "parse", kernel)["names"][0]["fields"]
        self.assertEqual((fields["recipe"], fields["tile"], fields["bias"]),
                         ("row", "128x176x128", "no"))
        words = [f"{field}={value}" for field, value in fields.items()]
        self.assertEqual(self.json_of("names", "of", *words)["name"], kernel)
        some = self.json_of("names", "catalogue", "recipe=row", "sum=fast", "schedule=pingpong",
                            "a=e4m3", "b=e4m3", "d=bf16")
        self.assertIn(kernel, some["names"])
        self.assertEqual(some["count"], len(set(some["names"])))
        self.fails(BAD_USAGE, "the stage count at byte", "names", "parse",
                   kernel.replace("_s5_", "_5_"))
        self.fails(BAD_USAGE, "no field; these are a, b", "names", "catalogue", "colour=red")
        self.fails(BAD_USAGE, "a field and its value", "names", "of", "tile")

    PTX = (".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry matrix_product(.param .u64 p)\n{\n"
           "  .reg .b64 %rd<2>;\n  .reg .f32 %f<2>;\n  ld.param.u64 %rd1, [p];\n  ld.global.f32 %f1, [%rd1];\n"
           "  add.f32 %f1, %f1, %f1;\n  st.global.f32 [%rd1], %f1;\n  ret;\n}\n")

    def test_names_of_others(self):
        name = ("cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_f32_bf16_bf16_128x128x128_2x1x1_0_tnt_align16_"
                "warpspecialized_cooperative_fp8_fastaccum_epi_tma")
        document = self.json_of("names", "parse", name, "nvjet_qqtst_112x128_128x7_2x1_v_bz_coopA_TNN")
        cutlass, nvjet = document["names"]
        self.assertEqual((cutlass["maker"], cutlass["fields"]["schedule"], cutlass["fields"]["sum"]),
                         ("cutlass", "cooperative", "fast"))
        self.assertEqual((nvjet["maker"], nvjet["fields"]["tile"]), ("nvjet", "112x128x128"))
        self.assertTrue(any("are taken as" in note for note in nvjet["notes"]), nvjet)

    def test_names_ab_refuses_what_is_no_ptx(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "kernel.ptx"
            for text, pattern in (("hello", r"kernel.ptx:1:1: a module begins with .version"),
                                  (self.PTX[:-3], r"kernel.ptx:5:1: this { is never closed"),
                                  (self.PTX + "\x02", r"kernel.ptx:14:1: byte 0x02 is no part of PTX")):
                path.write_text(text, encoding="utf-8")
                self.fails(BAD_USAGE, pattern, "names", "ab", path)
            self.fails(BAD_USAGE, "cannot be read", "names", "ab", pathlib.Path(folder) / "none.ptx")
            self.fails(BAD_USAGE, "-O: .9. was given", "names", "ab", path, "-O", 9)
            path.unlink()
            self.fails(BAD_USAGE, "no file here ends in .ptx", "names", "ab", folder)

    def test_names_ab_on_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "good.ptx").write_text(self.PTX, encoding="utf-8")
            (folder / "bad.ptx").write_text("nonsense", encoding="utf-8")
            (folder / "manifest.json").write_text(json.dumps({"files": [
                {"file": "good.ptx", "source": "by hand", "compiler": "none", "compiler_version": "1"}]}),
                encoding="utf-8")
            result = octavo("names", "ab", folder, "--out", folder / "out.json", "--json")
            if result.returncode == ENVIRONMENT:
                self.assertIn("neither ptxas", json.loads(result.stdout)["error"]["message"])
                self.skipTest("nothing assembles PTX here")
            self.assertEqual(result.returncode, CHECK_FAILED, result.stderr)
            document = json.loads(result.stdout)
            self.assertEqual(document, json.loads((folder / "out.json").read_text(encoding="utf-8")))
            bad, good = document["rows"]
            self.assertRegex(bad["error"], "bad.ptx:1:1: ")
            self.assertEqual(good["origin"]["source"], "by hand")
            entry = good["entries"][0]
            self.assertEqual((entry["entry"], entry["verdict"], entry["with_word"]["name"], entry["has_word"]),
                             ("matrix_product", "identical", "cutlassproduct", False))
            self.assertEqual(document["counts"], {"entries": 1, "identical": 1, "reordered": 0, "different": 0,
                                                  "failed": 1})

    def test_names_ab_reads_launch_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "kernel.ptx"
            path.write_text(self.PTX, encoding="utf-8")
            if octavo("names", "ab", path).returncode == ENVIRONMENT:
                self.skipTest("nothing assembles PTX here")
            launch = path.with_suffix(".launch.json")
            good = {"grid": [1, 1, 1], "block": [1, 1, 1],
                    "arguments": [{"buffer": "f32", "count": 4, "fill": "ones", "output": True}]}
            document = self.json_of("names", "ab", path, "--run")
            self.assertIsNone(document["rows"][0]["entries"][0]["run"])
            for change, pattern in (({"grid": [1, 1]}, "grid is no list of three"),
                                    ({"grid": [0, 1, 1]}, r"grid\[0\] is 0"),
                                    ({"block": [2048, 1, 1]}, r"block\[0\] is 2048"),
                                    ({"shared_bytes": 999999}, "shared_bytes is 999999"),
                                    ({"arguments": []}, "has 0 entries; it must be one for each of the kernel's 1"),
                                    ({"arguments": [{"i16": 3}]}, "a buffer, i32, f32 or u64"),
                                    ({"arguments": [{"buffer": "f99", "count": 1}]}, r"arguments\[0\].buffer"),
                                    ({"arguments": [{"buffer": "f32"}]}, "count is missing"),
                                    ({"arguments": [{"i32": 3}]}, "has 4 bytes; it must be as long as its parameter, which has 8"),
                                    ({"arguments": [{"u64": 3}]}, "has no output")):
                launch.write_text(json.dumps({**good, **change}), encoding="utf-8")
                self.fails(BAD_USAGE, pattern, "names", "ab", path, "--run")
            launch.write_text("{", encoding="utf-8")
            self.fails(BAD_USAGE, "kernel.launch.json", "names", "ab", path, "--run")
            launch.write_text(json.dumps(good), encoding="utf-8")
            self.fails(ENVIRONMENT, "libcuda.so.1|CUDA error", "names", "ab", path, "--run")

    def test_names_ptx(self):
        kernel = ("octavo_sm90_gemm_tensorf32xe4m3_tensorf32xe4m3_f32fast_bf16_128x128x128_1x1_s5_u4_tnt_"
                  "cooperative_alongn8")
        result = octavo("names", "ptx", kernel)
        if result.returncode == ENVIRONMENT:
            self.assertIn("nvrtc", result.stderr)
            self.skipTest("no NVRTC here")
        self.assertEqual(result.returncode, SUCCESS, result.stderr)
        self.assertIn(f".entry {kernel}", result.stdout)
        self.assertIn(".target sm_90a", result.stdout)
        self.fails(BAD_USAGE, "kernel name", "names", "ptx", "nonsense")

    def record_text(self, environment, problem, kernel):
        body = (f"octavo-tuning 1\nenvironment {environment}\nproblem {problem}\n"
                f"kernel {kernel}\nus 9.000\nmodel_kernel none\nmodel_us 10.000\ncandidates 2\n")
        return body + f"sha256 {hashlib.sha256(body.encode()).hexdigest()}\n"

    # CASES C75: what was tuned for a bucket of rows serves all of them, and says so.
    def test_C75_a_record_chooses_for_its_bucket(self):
        gpu = SOURCE / "data/devices/h200.json"
        described = json.loads(gpu.read_text(encoding="utf-8"))

        def plan(m, **how):
            return self.json_of("explain", "gemm", "--m", m, "--n", 4096, "--k", 4096, "--splits", 1,
                                "--d-dtype", "bf16", "--device-file", gpu, **how)["plan"]

        version = octavo("--version").stdout.strip().split()[-1]
        environment = (f"driver={described['driver']} nvrtc={described['nvrtc']} "
                       f"octavo={version}")
        problem = ("gemm gpu=NVIDIA H200 multiprocessors=132 m<=64 n=4096 k=4096 a=e4m3 b=e4m3 "
                   "d=bf16 recipe=block sum=promoted splits=1")
        with tempfile.TemporaryDirectory() as folder:
            env = {"OCTAVO_CACHE_DIR": os.path.join(folder, "cache")}
            candidates = [c["kernel"] for c in plan(64, env=env)["candidates"]]
            self.assertGreater(len(candidates), 1)
            path = pathlib.Path(folder) / "records.txt"
            path.write_text(self.record_text(environment, problem, candidates[-1]),
                            encoding="utf-8")
            self.assertEqual(
                self.json_of("tune", "--import", path, env=env)["num_records"], 1)
            tuned = plan(50, env=env)
            self.assertEqual(tuned["chosen_by"], "record")
            self.assertEqual(tuned["candidates"][0]["kernel"], candidates[-1])
            self.assertEqual(tuned["record"]["model_us"], 10)
            self.assertNotEqual(plan(65, env=env)["chosen_by"], "record")
            self.assertEqual(self.json_of("tune", "--show", env=env)["num_unusable"], 0)
            copy = pathlib.Path(folder) / "copy.txt"
            self.json_of("tune", "--export", copy, env=env)
            self.assertEqual(copy.read_text(encoding="utf-8"), path.read_text(encoding="utf-8"))
            # A kernel that the plan does not offer, and another driver: as if there were none.
            for other in (self.record_text(environment, problem, candidates[-1] + "_bias"),
                          self.record_text("driver=1 nvrtc=1 octavo=1", problem, candidates[-1])):
                path.write_text(other, encoding="utf-8")
                fresh = {"OCTAVO_CACHE_DIR": os.path.join(folder, "other")}
                self.json_of("tune", "--import", path, env=fresh)
                self.assertNotEqual(plan(64, env=fresh)["chosen_by"], "record")
            path.write_text(copy.read_text(encoding="utf-8").replace("9.000", "1.000"),
                            encoding="utf-8")
            self.fails(BAD_USAGE, "line 9 does not hold the checksum", "tune", "--import", path,
                       env=env)
            self.fails(BAD_USAGE, "takes exactly one", "tune", env=env)

    def test_explain_attention(self):
        for options in ([], ["--page-size", 16, "--scales", "page_head", "--batch", 3],
                        ["--lengths", "random", "--scales", "batch_head"], ["--kv-len", 0],
                        ["--dtype", "bf16"], ["--heads", 9, "--kv-heads", 3]):
            document = self.json_of("explain", "attention", *options)
            self.assertEqual(document["chosen"], "cpu", options)
            self.assertEqual(document["problem"]["op"], "attention")
            self.assertEqual(document["backends"][0]["reasons"][0]["kind"], "environment")
        document = self.json_of("explain", "attention", "--numerics", "emulated", "--dtype", "f16",
                                code=ENVIRONMENT)
        self.assertIsNone(document["chosen"])
        self.assertEqual(document["backends"][1]["reasons"][0]["field"], "q")
        self.fails(BAD_USAGE, "multiple", "explain", "attention", "--heads", 8, "--kv-heads", 3)
        self.fails(BAD_USAGE, "need pages", "explain", "attention", "--scales", "page_head")
        self.fails(ENVIRONMENT, "this machine has .* GiB of memory", "explain", "attention",
                   "--batch", 65536, "--q-len", 1 << 24, "--heads", 4096)

    # --- run gemm

    def test_run_gemm_emulated_is_within_its_bounds(self):
        for recipe in ("tensor", "row", "block", "block1d"):
            for scales in ("f32", "ue8m0"):
                for data, bound in (("gaussian", 3e-4), ("positive", 8e-4)):
                    document = self.json_of("run", "gemm", "--backend", "cpu", "--m", 65, "--n",
                                            80, "--k", 577, "--recipe", recipe, "--numerics",
                                            "emulated", "--scales", scales, "--data", data)
                    error = document["error"]["relative_frobenius"]
                    self.assertTrue(document["within_bound"])
                    self.assertEqual(document["bound"]["relative_frobenius"], bound)
                    self.assertLessEqual(error, bound)
                    # FP64 and 13-bit sums cannot agree to the last bit: a zero means that one was
                    # compared with itself.
                    self.assertGreater(error, 1e-6)

    def test_run_gemm_fast_accumulation(self):
        for recipe in ("tensor", "row"):
            for data in ("gaussian", "positive"):
                document = self.json_of("run", "gemm", "--m", 33, "--n", 40, "--k", 4096,
                                        "--recipe", recipe, "--accumulation", "fast",
                                        "--numerics", "emulated", "--data", data)
                bound = 5e-5 * math.sqrt(4096) if data == "gaussian" else 4096 / 40000
                self.assertAlmostEqual(document["bound"]["relative_frobenius"], bound)
                self.assertLessEqual(document["error"]["relative_frobenius"], bound)
                if data == "positive":  # truncation is a bias toward zero
                    self.assertLess(document["error"]["mean_signed"], -0.01)
        self.fails(BAD_USAGE, "accumulation is fast and recipe is block",
                   *PRODUCT, "--accumulation", "fast")

    def test_run_gemm_blocked_and_reference(self):
        for numerics in ("blocked", "reference", "default"):
            document = self.json_of(*PRODUCT, "--numerics", numerics)
            self.assertTrue(document["within_bound"])
            self.assertLess(document["error"]["relative_frobenius"], 2e-6)
            quantized = document["error_before_quantization"]["relative_frobenius"]
            self.assertTrue(0.03 < quantized < 0.045, quantized)

    def test_run_gemm_types_and_modes(self):
        for options in (["--d-dtype", "bf16"], ["--d-dtype", "f16"], ["--d-dtype", "e4m3"],
                        ["--d-dtype", "e5m2"], ["--bias"], ["--accumulate"], ["--splits", 3],
                        ["--batch", 3, "--recipe", "row"], ["--batch", 2, "--bias", "--accumulate"],
                        ["--a-dtype", "e5m2"], ["--a-dtype", "bf16", "--recipe", "row"],
                        ["--data", "outliers"]):
            document = self.json_of(*PRODUCT, *options)
            self.assertTrue(document["within_bound"], options)
        for m, n, k in ((0, 8, 64), (8, 0, 64), (8, 8, 0), (1, 1, 1), (1, 1, 4096)):
            document = self.json_of("run", "gemm", "--m", m, "--n", n, "--k", k, "--bias")
            self.assertTrue(document["within_bound"], (m, n, k))

    def test_run_gemm_is_repeatable(self):
        first = self.json_of(*PRODUCT, "--seed", 7)
        again = self.json_of(*first["repeat"].split()[1:])
        other = self.json_of(*PRODUCT, "--seed", 8)
        self.assertEqual(first["error"], again["error"])
        self.assertNotEqual(first["error"], other["error"])

    def test_run_gemm_large_product_checks_a_sample_of_rows(self):
        document = self.json_of("run", "gemm", "--m", 3000, "--n", 640, "--k", 640)
        self.assertTrue(document["within_bound"])
        self.assertTrue(0 < document["checked_rows"] < 3000)

    def test_run_gemm_save_and_load(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "operands.safetensors")
            saved = self.json_of(*PRODUCT, "--numerics", "emulated", "--save", path)
            self.assertEqual(os.listdir(folder), ["operands.safetensors"])
            loaded = self.json_of("run", "gemm", "--numerics", "emulated", "--load", path)
            self.assertEqual(saved["error"], loaded["error"])
            self.assertEqual(loaded["problem"]["m"], 33)
            data = bytearray(pathlib.Path(path).read_bytes())
            (header_bytes,) = struct.unpack_from("<Q", data)
            header = json.loads(data[8:8 + header_bytes])
            self.assertEqual(header["a"]["dtype"], "F8_E4M3")

            # Hostile files end in a message, never in a crash.
            for number, damage in enumerate((
                    lambda d: d[:20], lambda d: d[:-1], lambda d: b"\xff" * 8 + d[8:],
                    lambda d: d.replace(b"33", b"99", 1), lambda d: d.replace(b'"b"', b'"c"'),
                    lambda d: b"")):
                damaged = os.path.join(folder, f"damaged{number}.safetensors")
                pathlib.Path(damaged).write_bytes(damage(bytes(data)))
                self.fails(BAD_USAGE, "damaged", "run", "gemm", "--load", damaged)
        self.fails(BAD_USAGE, "cannot be created", *PRODUCT, "--save", "/nonexistent/x.safetensors")

    def test_run_gemm_outside_the_bound_exits_1(self):
        # Scales exchanged for others make another product; the check must notice.
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "operands.safetensors")
            self.json_of(*PRODUCT, "--data", "positive", "--save", path)
            # Positive data judged by the tighter bound for mixed signs is outside it.
            document = self.json_of("run", "gemm", "--numerics", "emulated", "--load", path,
                                    "--data", "gaussian", code=CHECK_FAILED)
            self.assertFalse(document["within_bound"])
            result = octavo("run", "gemm", "--numerics", "emulated", "--load", path)
            self.assertEqual(result.returncode, CHECK_FAILED)
            self.assertIn("OUTSIDE THE BOUND", result.stdout)

    def test_back_ends_forced_by_name(self):
        self.assertEqual(self.json_of(*PRODUCT, "--backend", "cpu")["backend"], "cpu")
        # Without a GPU each says what was looked for and what to do.
        for arguments, env in (([*PRODUCT, "--backend", "cuda"], None),
                               (PRODUCT, {"OCTAVO_BACKEND": "cuda"}),
                               (["run", "quantize", "--backend", "cuda"], None),
                               (["bench", SOURCE / "bench/suites/llm_gemm.json", "--backend",
                                 "cuda"], None),
                               (["doctor", "--device-out", "/nonexistent/x"], None)):
            self.fails(ENVIRONMENT, "libcuda.so.1|cuInit|no GPU is found", *arguments, env=env)
        self.fails(BAD_USAGE, "backend is \"gpu\"; this build has \"cuda\", \"cpu\"",
                   *PRODUCT, "--backend", "gpu")

    def test_too_large_for_the_machine_exits_3(self):
        self.fails(ENVIRONMENT, "this machine has .* GiB of memory", "run", "gemm", "--m",
                   1 << 24, "--n", 1 << 24, "--k", 1 << 24)
        self.fails(ENVIRONMENT, "this machine has .* GiB of memory", "run", "attention",
                   "--kv-len", 1 << 24, "--kv-heads", 4096, "--heads", 4096, "--head-dim", 1024)

    # --- run attention and quantize

    def test_run_attention(self):
        for numerics in ("blocked", "emulated", "reference"):
            for options in ([], ["--q-len", 1, "--kv-len", 300], ["--heads", 9, "--kv-heads", 3],
                            ["--mask", "none"], ["--window-left", 20], ["--softcap", 30],
                            ["--page-size", 16, "--scales", "page_head", "--lengths", "random",
                             "--batch", 3],
                            ["--scales", "batch_head", "--batch", 2], ["--kv-len", 0],
                            ["--v-dim", 32], ["--data", "positive"], ["--o-dtype", "bf16"]):
                document = self.json_of("run", "attention", "--numerics", numerics, *options)
                self.assertTrue(document["within_bound"], (numerics, options, document))
        document = self.json_of("run", "attention", "--dtype", "bf16", "--scales", "none")
        self.assertTrue(document["within_bound"])
        self.fails(BAD_USAGE, "needs pages|need pages", "run", "attention", "--scales", "page_head")
        self.fails(BAD_USAGE, "multiple", "run", "attention", "--heads", 8, "--kv-heads", 3)

    def test_run_quantize(self):
        for granularity in ("tensor", "row", "1x128", "128x128"):
            for options in ([], ["--scales", "ue8m0"], ["--dtype", "e5m2"], ["--x-dtype", "bf16"],
                            ["--data", "outliers"]):
                document = self.json_of("run", "quantize", "--rows", 130, "--cols", 300,
                                        "--granularity", granularity, *options)
                self.assertTrue(document["equal_to_definition"])
                self.assertTrue(0.01 < document["error"]["relative_frobenius"] < 0.08)

    # --- bench

    def suite(self, folder, content):
        path = pathlib.Path(folder) / "suite.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content),
                        encoding="utf-8")
        return path

    def test_bench_writes_a_result_file(self):
        with tempfile.TemporaryDirectory() as folder:
            problems = [{"op": "gemm", "m": m, "n": 96, "k": 256, "recipe": recipe}
                        for m in (1, 33) for recipe in ("row", "block")]
            path = self.suite(folder, {"suite": "small", "problems": problems})
            out = os.path.join(folder, "result.json")
            document = self.json_of("bench", path, "--out", out, "--repeat", 3)
            written = json.loads(pathlib.Path(out).read_text(encoding="utf-8"))
            self.assertEqual(document, written)
            self.assertEqual(sorted(os.listdir(folder)), ["result.json", "suite.json"])
            for key in ("schema", "date", "commit", "dirty", "machine", "suite", "command",
                        "method", "rows"):
                self.assertIn(key, document)
            self.assertEqual(document["schema"], 1)
            self.assertEqual(len(document["rows"]), 4)
            for row in document["rows"]:
                self.assertEqual(row["contender"], "octavo")
                self.assertLessEqual(row["us"]["p10"], row["us"]["p90"])
                self.assertGreater(row["tflops"], 0)
                self.assertTrue(row["error"]["within_bound"])
                self.assertRegex(row["repeat"], "^octavo run gemm --m ")
            # "octavo bench SUITE --out FILE --repeat 3", so that it can be run again.
            self.assertEqual(document["command"].split()[2:],
                             [str(path), "--out", out, "--repeat", "3"])
            table = octavo("bench", path, "--repeat", 1)
            self.assertEqual(len(table.stdout.strip().splitlines()), 5)

    def test_bench_refuses_bad_suites(self):
        with tempfile.TemporaryDirectory() as folder:
            good = {"op": "gemm", "m": 1, "n": 1, "k": 1}
            for content, pattern in (
                    ("{\n  \"suite\": ,\n}", "line 2, column 12"), ("", "line 1"), ("[]", "object"),
                    ({"suite": "s"}, "problems"), ({"problems": []}, "suite"),
                    ({"suite": "s", "problems": [{"op": "conv"}]}, r"problems\[0\].op"),
                    ({"suite": "s", "problems": [{"op": "gemm", "m": 1}]}, "has no n"),
                    ({"suite": "s", "problems": [good, {**good, "m": -1}]}, r"problems\[1\].m"),
                    ({"suite": "s", "problems": [{**good, "m": 1.5}]}, r"problems\[0\].m is 1.5"),
                    ({"suite": "s", "problems": [{**good, "m": 1 << 63}]}, r"problems\[0\].m"),
                    ({"suite": "s", "problems": [{**good, "recipe": "x"}]}, "one of none, tensor"),
                    ({"suite": "s", "problems": [{**good, "colour": 1}]}, "colour is not a key"),
                    ("[" * 100000, "nested|line")):
                self.fails(BAD_USAGE, pattern, "bench", self.suite(folder, content))
            huge = {**good, "m": 1 << 24, "n": 1 << 24, "k": 1 << 24, "batch": 1 << 16}
            self.fails(ENVIRONMENT, "this machine has .* GiB of memory", "bench",
                       self.suite(folder, {"suite": "s", "problems": [huge]}))
            # Noticed before anything is measured, though the problem could not be run either.
            self.fails(BAD_USAGE, "cannot be created", "bench", folder + "/suite.json", "--out",
                       "/nonexistent/result.json")
        self.fails(BAD_USAGE, "could not be opened", "bench", "/nonexistent.json")

    def test_bench_names_no_commit_outside_the_sources(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.suite(folder, {"suite": "s", "problems": [{"op": "gemm", "m": 1, "n": 1,
                                                                   "k": 1}]})
            odd = os.fsencode(folder) + b"/odd\xff.json"  # a path that is no UTF-8
            os.rename(path, odd)
            result = subprocess.run([COMMAND, "bench", odd, "--json"], stdout=subprocess.PIPE,
                                    cwd=folder, timeout=250, check=True)
            document = json.loads(result.stdout)
            self.assertIsNone(document["commit"])
            self.assertIsNone(document["dirty"])

    # --- models

    def test_generate_on_the_tiny_model(self):
        model = SOURCE / "tests/data/tiny_llama"
        document = self.json_of("generate", "--model", model, "--prompt", "It is a truth",
                                "--max-tokens", 8)
        self.assertEqual(len(document["tokens"]), 8)
        self.assertGreater(document["decode"]["tokens_per_second"], 0)
        again = self.json_of("generate", "--model", model, "--prompt", "It is a truth",
                             "--max-tokens", 8)
        self.assertEqual(document["tokens"], again["tokens"])
        self.fails(BAD_USAGE, "nonexistent", "generate", "--model", "/nonexistent.gguf",
                   "--prompt", "x")

    def test_perplexity_on_the_tiny_model(self):
        model = SOURCE / "tests/data/tiny_llama"
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "text"
            text.write_text("It is a truth universally acknowledged. " * 8, encoding="utf-8")
            document = self.json_of("perplexity", "--model", model, "--text", text, "--precisions",
                                    "f32,fp8", "--window", 1 << 30, "--max-tokens", 40)
            self.assertEqual(document["tokens"], 40)
            # The window is the model's context where that is shorter than what was asked for.
            context = json.loads((model / "config.json").read_text())["max_position_embeddings"]
            self.assertEqual(document["window"], context)
            baseline, fp8 = document["rows"]
            self.assertGreater(baseline["perplexity"], 1)
            self.assertNotIn("relative_change", baseline)
            self.assertTrue(0 < abs(fp8["relative_change"]) < 0.2, fp8)
            text.write_text("", encoding="utf-8")
            self.fails(BAD_USAGE, "text", "perplexity", "--model", model, "--text", text)
        self.fails(BAD_USAGE, "--precisions", "perplexity", "--model", model, "--text", text,
                   "--precisions", "f32,fp9")

    def test_which_model_is_taken(self):
        tiny = str(SOURCE / "tests/data/tiny_llama")
        with tempfile.TemporaryDirectory() as cache:
            nowhere = {"OCTAVO_MODEL": "", "XDG_CACHE_HOME": cache}
            for verb in (["generate", "--prompt", "x"], ["perplexity", "--text", "/dev/null"]):
                self.fails(ENVIRONMENT, r"\./quickstart\.sh.*--model", *verb, env=nowhere)
            generate = ["generate", "--raw", "--prompt", "It is", "--max-tokens", 1]
            named = {**nowhere, "OCTAVO_MODEL": tiny}
            self.assertEqual(self.json_of(*generate, env=named)["model"], tiny)
            other = {**nowhere, "OCTAVO_MODEL": "/nonexistent.gguf"}
            self.fails(BAD_USAGE, "nonexistent", *generate, env=other)
            self.assertEqual(self.json_of(*generate, "--model", tiny, env=other)["model"], tiny)
            # What quickstart.sh fetches comes last: found, and here refused as no GGUF.
            os.mkdir(os.path.join(cache, "octavo"))
            path = os.path.join(cache, "octavo", "SmolLM2-135M-Instruct.Q4_1.gguf")
            pathlib.Path(path).write_bytes(b"not a model")
            self.fails(BAD_USAGE, "SmolLM2-135M-Instruct.Q4_1.gguf", *generate, env=nowhere)


if __name__ == "__main__":
    python_suite.main(CommandTest)
