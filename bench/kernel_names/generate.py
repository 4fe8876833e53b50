#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the corpus that `octavo names ab` is run on: PTX of many kernels, one entry a file.

    generate.py OUT [--octavo PATH] [--triton-python PATH] [--nvcc PATH]

What is written, and what else lies beside a PTX file: README.md. Tools are called one at a time.
A tool that is missing is left out with a note, unless it was asked for; exit code 1 then, and when
a compiler failed.
"""

import argparse
import dataclasses
import fnmatch
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOLDER = HERE.relative_to(ROOT).as_posix()

# ---- Launches: what the entries of the CUDA sources take -----------------------------------------
TILE = 128
WGMMA_GEMM_SHARED = 132096  # kGemmSharedBytes and kSharedBytes of the sources
WGMMA_ATTENTION_SHARED = 82944
MMA_SYNC_SHARED = 49152
H200_MULTIPROCESSORS = 132


def operand(buffer, count, fill="normal"):
    return {"buffer": buffer, "count": count, "fill": fill}


def result(buffer, count):
    return {"buffer": buffer, "count": count, "fill": "poison", "output": True}


def launch(grid, threads, flop, arguments, shared_bytes=0):
    return {"grid": (list(grid) + [1, 1])[:3], "block": [threads, 1, 1],
            "shared_bytes": shared_bytes, "cluster": [1, 1, 1], "flop": flop,
            "arguments": arguments}


def gemm_launch(buffer, output, threads, shared_bytes, scales=(), grid=None, m=4096, n=4096, k=4096):
    """A, B, then scales (as many numbers of each), C, M, N, K."""
    return launch(grid or (n // TILE, m // TILE), threads, 2.0 * m * n * k,
                  [operand(buffer, m * k), operand(buffer, n * k)]
                  + [operand("f32", count, "uniform") for count in scales]
                  + [result(output, m * n), {"i32": m}, {"i32": n}, {"i32": k}], shared_bytes)


ROWS, COLUMNS = 16384, 4096
ELEMENTS = ROWS * COLUMNS
PLAIN_SCALES = (1,)
BLOCK_SCALES = (4096 // TILE * 4096, (4096 // TILE) ** 2)
HEADS, LENGTH, HEAD_DIM = 32, 4096, 128
PER_HEAD = LENGTH * HEAD_DIM


@dataclasses.dataclass
class Entry:
    source: str
    name: str
    archs: tuple
    launch: dict


SIMT = ("sm_80", "sm_89", "sm_90a", "sm_100a")
ENTRIES = [
    Entry("simt.cu", "sgemm_128x128x16", SIMT, gemm_launch("f32", "f32", 256, 0, k=1024)),
    Entry("simt.cu", "quantize_1x128_e4m3", SIMT,
          launch((ELEMENTS // TILE // 8,), 256, 3.0 * ELEMENTS,
                 [operand("f32", ELEMENTS), result("e4m3", ELEMENTS),
                  result("f32", ELEMENTS // TILE), {"i32": ELEMENTS // TILE}])),
    Entry("simt.cu", "axpy", SIMT,
          launch((ELEMENTS // 256,), 256, 2.0 * ELEMENTS,
                 [operand("f32", ELEMENTS), operand("f32", ELEMENTS), result("f32", ELEMENTS),
                  {"f32": 0.5}, {"i32": ELEMENTS}])),
    Entry("simt.cu", "softmax_rows", SIMT,
          launch((ROWS,), 256, 5.0 * ELEMENTS,
                 [operand("f32", ELEMENTS), result("f32", ELEMENTS), {"i32": COLUMNS}])),
    Entry("mma_sync.cu", "mma_sync_bf16_gemm", ("sm_80", "sm_89", "sm_90"),
          gemm_launch("bf16", "f32", 256, MMA_SYNC_SHARED)),
    Entry("mma_sync.cu", "mma_sync_fp8_gemm", ("sm_89", "sm_90"),
          gemm_launch("e4m3", "f32", 256, MMA_SYNC_SHARED)),
    Entry("wgmma.cu", "wgmma_fp8_gemm_plain", ("sm_90a",),
          gemm_launch("e4m3", "bf16", 256, WGMMA_GEMM_SHARED, PLAIN_SCALES)),
    Entry("wgmma.cu", "wgmma_fp8_gemm_promoted", ("sm_90a",),
          gemm_launch("e4m3", "bf16", 256, WGMMA_GEMM_SHARED, BLOCK_SCALES)),
    Entry("wgmma.cu", "wgmma_fp8_attention", ("sm_90a",),
          launch((LENGTH // TILE, HEADS), 256, 4.0 * HEADS * LENGTH * PER_HEAD,
                 [operand("e4m3", HEADS * PER_HEAD) for _ in range(3)]
                 + [result("bf16", HEADS * PER_HEAD), {"f32": HEAD_DIM ** -0.5}, {"i32": LENGTH}],
                 WGMMA_ATTENTION_SHARED)),
    Entry("wgmma_warpspecialized.cu", "wgmma_fp8_warpspecialized_plain", ("sm_90a",),
          gemm_launch("e4m3", "bf16", 384, WGMMA_GEMM_SHARED, PLAIN_SCALES,
                      (H200_MULTIPROCESSORS,))),
    Entry("wgmma_warpspecialized.cu", "wgmma_fp8_warpspecialized_promoted", ("sm_90a",),
          gemm_launch("e4m3", "bf16", 384, WGMMA_GEMM_SHARED, BLOCK_SCALES,
                      (H200_MULTIPROCESSORS,))),
    Entry("tcgen05.cu", "tcgen05_fp8_gemm", ("sm_100a",),
          gemm_launch("e4m3", "f32", 128, WGMMA_GEMM_SHARED)),
]

# Of the catalogue, the first name that matches each: a kernel of every recipe and schedule.
OCTAVO_KERNELS = [
    "octavo_sm90_gemm_tensorf32xe4m3_tensorf32xe4m3_f32fast_bf16_*_pingpong_alongn8",
    "octavo_sm90_gemm_tensorf32xe4m3_tensorf32xe4m3_f32fast_bf16_128x256x128_*_cooperative_alongn8",
    "octavo_sm90_gemm_tensorf32xe4m3_tensorf32xe4m3_f32_bf16_256x128x128_*_cooperative_alongn8",
    "octavo_sm90_gemm_rowf32xe4m3_rowf32xe4m3_f32_bf16_128x128x128_*_cooperative_alongn8",
    "octavo_sm90_gemm_1x128f32xe4m3_128x128f32xe4m3_f32_bf16_256x128x128_*_cooperative_alongn8",
    "octavo_sm90_gemm_1x128f32xe4m3_1x128f32xe4m3_f32_bf16_128x128x128_*_cooperative_alongn8",
    "octavo_sm90_gemm_1x128f32xe4m3_128x128f32xe4m3_f32_bf16_*_cooperative_alongn8_grouped",
    "octavo_sm90_gemm_1x128f32xe4m3_128x128f32xe4m3_f32_bf16_8x128x128_*_streamed_alongn8",
    "octavo_sm90_gemm_rowf32xe4m3_rowf32xe4m3_f32_bf16_16x64x128_*_streamed_alongn8_split4",
    "octavo_sm90_gemm_tensorf32xe4m3_tensorf32xe4m3_f32fast_bf16_64x128x128_*_streamed_alongn8",
]


class ToolFailed(Exception):
    pass


def run(command, **options):
    """stdout of a tool, or ToolFailed with what it had to say."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              check=False, **options)
    except OSError as error:
        raise ToolFailed(f"{pathlib.Path(command[0]).name}: {error.strerror}") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        # Of a Python error the last line says what, of a compiler's the first.
        said = said[-1:] if said and said[0].startswith("Traceback") else said[:3]
        raise ToolFailed(f"{pathlib.Path(command[0]).name} ended with {done.returncode}: "
                         + " ".join(said))
    return done.stdout


def only_entry(ptx):
    """Entry, architecture and number of parameters of a PTX file."""
    entries = re.findall(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)", ptx)
    target = re.search(r"^\.target\s+(sm_\w+)", ptx, re.MULTILINE)
    if len(entries) != 1 or not target:
        raise ToolFailed(f"PTX has {len(entries)} entries and "
                         f"{'a' if target else 'no'} target; one of each is needed")
    name, parameters = entries[0]
    return name, target.group(1), parameters.count(".param")


def compiler_version(ptx):
    """What NVIDIA's compilers write at the top of their PTX."""
    found = re.search(r"Cuda compilation tools, release [\d.]+, V([\d.]+)", ptx)
    return found.group(1) if found else "unknown"


class Corpus:
    """The folder, and what its manifest will say."""

    def __init__(self, out):
        self.out = out
        self.files = []
        self.left_out = []
        self.failures = 0

    def leave_out(self, what, why, failed=False):
        self.left_out.append({"what": what, "why": why})
        self.failures += failed
        print(f"generate.py: left out: {what}: {why}", file=sys.stderr)

    def clear(self):
        """Removes the last run's files. A folder that holds something else is not ours to clear."""
        self.out.mkdir(parents=True, exist_ok=True)
        present = list(self.out.iterdir())
        if not present:
            return
        if not (self.out / "manifest.json").is_file():
            raise SystemExit(f"generate.py: {self.out}: not empty, and without a manifest.json of an "
                             "earlier run. Name a folder that is empty or not there yet.")
        try:
            earlier = json.loads((self.out / "manifest.json").read_text())["files"]
            stems = [str(file["file"]).removesuffix(".ptx") for file in earlier]
        except (ValueError, KeyError, TypeError):
            raise SystemExit(f"generate.py: {self.out}: its manifest.json is not of an earlier run. Name a "
                             "folder that is empty or not there yet.") from None
        ours = {f"{stem}{end}" for stem in stems for end in (".ptx", ".launch.json", ".json")}
        foreign = sorted(path.name for path in present if path.name not in ours | {"manifest.json"})
        if foreign:
            raise SystemExit(f"generate.py: {self.out}: holds {foreign[0]}, which no earlier run wrote. Name a "
                             "folder that is empty or not there yet.")
        for path in present:
            path.unlink()

    def record(self, entry, arch, source, compiler, version, command):
        self.files.append({"file": f"{entry}.{arch}.ptx", "entry": entry, "arch": arch,
                           "source": source, "compiler": compiler, "compiler_version": version,
                           "command": command})

    def write_ptx(self, ptx, description=None):
        """Writes a PTX file and how to launch it; its entry and architecture."""
        entry, arch, parameters = only_entry(ptx)
        (self.out / f"{entry}.{arch}.ptx").write_text(ptx)
        if description is not None:
            if parameters != len(description["arguments"]):
                raise ToolFailed(f"{entry} takes {parameters} arguments, its launch has "
                                 f"{len(description['arguments'])}")
            (self.out / f"{entry}.{arch}.launch.json").write_text(json.dumps(description) + "\n")
        return entry, arch

    def finish(self):
        manifest = {"schema": 1, "files": sorted(self.files, key=lambda file: file["file"]),
                    "left_out": self.left_out}
        (self.out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def add_cuda(corpus, nvcc, asked_for):
    what = "the CUDA sources"
    try:
        version = re.search(r"V([\d.]+)", run([nvcc, "--version"])).group(1)
        known = set(run([nvcc, "--list-gpu-code"]).split())
    except ToolFailed as error:
        corpus.leave_out(what, f"no nvcc: {error}", failed=asked_for)
        return
    for entry in ENTRIES:
        for arch in entry.archs:
            # Listed without the suffix that says "this architecture alone".
            if not {arch, arch.rstrip("a")} & known:
                corpus.leave_out(f"{entry.name} for {arch}", f"nvcc {version} does not know {arch}")
                continue
            add_cuda_entry(corpus, nvcc, version, entry, arch)


def add_cuda_entry(corpus, nvcc, version, entry, arch):
    source = f"{FOLDER}/{entry.source}"
    command = ["nvcc", "-std=c++20", "-O3", "-ptx", f"-arch={arch}", "-DONE_ENTRY",
               f"-DENTRY_{entry.name}", source, "-o", f"{entry.name}.{arch}.ptx"]
    written = corpus.out / command[-1]
    try:
        run([nvcc, *command[1:-1], written.resolve()], cwd=ROOT)
        corpus.write_ptx(written.read_text(), entry.launch)
    except ToolFailed as error:
        written.unlink(missing_ok=True)
        corpus.leave_out(f"{entry.name} for {arch}", str(error), failed=True)
        return
    corpus.record(entry.name, arch, source, "nvcc", version, shlex.join(command))


def add_triton(corpus, python, asked_for):
    what = "the Triton kernels"
    source = f"{FOLDER}/triton_kernels.py"
    try:
        run([python, "-c", "import triton"])
    except ToolFailed as error:
        corpus.leave_out(what, f"no Triton for this Python ({error}); --triton-python names another",
                         failed=asked_for)
        return
    # Its exit code says no more than its list of failures does.
    done = subprocess.run([python, source, str(corpus.out.resolve())], cwd=ROOT, text=True,
                          capture_output=True, check=False)
    try:
        report = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        why = " ".join(done.stderr.strip().splitlines()[-3:])
        corpus.leave_out(what, f"{source} ended with {done.returncode}: {why}", failed=True)
        return
    for kernel in report["kernels"]:
        corpus.record(kernel["entry"], kernel["arch"], source, "triton", report["version"],
                      f"python {source} OUT")
    for failure in report["failed"]:
        corpus.leave_out(failure["what"], failure["why"], failed=True)


def octavo_extents(name):
    """A product that the kernel is for: as many rows as its tile has, if it is for few."""
    tile_rows = re.search(r"_(\d+)x\d+x128_\dx\d_s\d+_u\d+_tnt_streamed_", name)
    return {"m": int(tile_rows.group(1)) if tile_rows else 4096, "n": 4096, "k": 4096}


def add_octavo(corpus, octavo):
    what = "Octavo's own kernels"
    if octavo is None:
        corpus.leave_out(what, "--octavo was not given")
        return
    try:
        catalogue = run([octavo, "names", "catalogue"]).split()
    except ToolFailed as error:
        corpus.leave_out(what, str(error), failed=True)
        return
    for pattern in OCTAVO_KERNELS:
        name = next((name for name in catalogue if fnmatch.fnmatchcase(name, pattern)), None)
        if name is None:
            corpus.leave_out(pattern, "no name of the catalogue matches", failed=True)
            continue
        try:
            ptx = run([octavo, "names", "ptx", name])
            entry, arch = corpus.write_ptx(ptx)
            (corpus.out / f"{entry}.{arch}.launch.json").write_text(
                json.dumps(octavo_extents(name)) + "\n")
        except ToolFailed as error:
            corpus.leave_out(name, str(error), failed=True)
            continue
        corpus.record(entry, arch, "kernels/gemm", "nvrtc", compiler_version(ptx),
                      f"octavo names ptx {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path, help="folder for the corpus")
    parser.add_argument("--octavo", help="the command octavo: adds PTX of Octavo's own kernels")
    parser.add_argument("--triton-python", help="a Python that has Triton; otherwise this one is tried")
    parser.add_argument("--nvcc", help="otherwise the one on the PATH is tried")
    args = parser.parse_args()

    corpus = Corpus(args.out)
    corpus.clear()
    # Commands run in the repository's root: paths relative to here would be lost.
    here = {name: shutil.which(path) or path
            for name, path in (("nvcc", args.nvcc or "nvcc"),
                               ("python", args.triton_python or sys.executable),
                               ("octavo", args.octavo or "octavo"))}
    absolute = {name: str(pathlib.Path(path).absolute()) if "/" in path else path
                for name, path in here.items()}
    add_cuda(corpus, absolute["nvcc"], asked_for=args.nvcc is not None)
    add_triton(corpus, absolute["python"], asked_for=args.triton_python is not None)
    add_octavo(corpus, absolute["octavo"] if args.octavo else None)
    corpus.finish()
    print(f"generate.py: {len(corpus.files)} PTX files, {len(corpus.left_out)} left out, "
          f"{corpus.failures} failed; {args.out / 'manifest.json'} lists them")
    return 1 if corpus.failures or not corpus.files else 0


if __name__ == "__main__":
    sys.exit(main())
