# SPDX-License-Identifier: MIT
"""Runs the CUDA source of an emitted file on the CPU: emulator.h stands in for the GPU and for
PyTorch's C++. `Emulated(path)` has forward(*inputs) and backward(*inputs, *grads, needs), which
take and give PyTorch's CPU tensors."""
import concurrent.futures
import ctypes
import importlib.util
import os
import pathlib
import re
import subprocess

import torch

HERE = pathlib.Path(__file__).resolve().parent
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
# Functions that hold assembly; emulator.h has its own.
REPLACED = ["og_reciprocal_normal_f32", "og_f32_from_f16", "og_f16_from_f32", "store_words",
            "copy_async", "end_copies", "wait_copies", "pack_halves", "lesser_halves",
            "load_matrices", "multiply"]


class View(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int64), ("rank", ctypes.c_int64),
                ("sizes", ctypes.c_int64 * 8), ("strides", ctypes.c_int64 * 8)]


def load(path):
    spec = importlib.util.spec_from_file_location("emitted", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def close_of(text, at):
    """Behind the bracket that closes the one at text[at]."""
    pairs, depth = {"(": ")", "{": "}"}, 0
    for i in range(at, len(text)):
        depth += (text[i] == text[at]) - (text[i] == pairs[text[at]])
        if depth == 0:
            return i + 1
    raise ValueError("no end")


def remove_function(text, name):
    found = re.search(rf"^(?:template <[^\n]*>\s+)?(?:OG_FN|__device__ __forceinline__)[^\n;]*?\b{name}\(",
                      text, re.M)
    if not found:
        return text
    body = text.index("{", close_of(text, found.end() - 1))
    return text[:found.start()] + text[close_of(text, body):]


def split_arguments(text):
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def replace_launches(text):
    while True:
        found = re.search(r"(\w+(?:<[\w, ]+>)?)\s*<<<(.+?)>>>\s*\(", text, re.S)
        if not found:
            return text
        grid, threads, shared, _ = split_arguments(found[2])
        end = close_of(text, found.end() - 1)
        call = f"emulate({grid}, {threads}, {shared}, [=] {{ {found[1]}({text[found.end():end]}; }})"
        text = text[:found.start()] + call + text[end:]


def translate(kernels, host):
    for name in REPLACED:
        kernels = remove_function(kernels, name)
    kernels = kernels.replace("extern __shared__ __align__(16) unsigned char shared[];",
                              "unsigned char *shared = emulator_shared;")
    host = re.sub(r"#include <(c10|ATen).*\n", "", host)
    return kernels, replace_launches(host)


class Emulated:
    def __init__(self, path, folder, parts=("forward", "backward")):
        self.module = load(path)
        with concurrent.futures.ThreadPoolExecutor() as threads:  # each waits for a compiler
            built = threads.map(lambda part: self.build(part, pathlib.Path(folder)), parts)
            self.functions = dict(zip(parts, built))

    def build(self, part, folder):
        m, upper = self.module, part.upper()
        kernels, host = translate(m.CUDA_SHARED + getattr(m, f"CUDA_{upper}"),
                                  m.HOST_SHARED + getattr(m, f"HOST_{upper}"))
        signature = getattr(m, f"DECLARE_{upper}")
        kinds = re.findall(r"(at::Tensor &|double|vector<bool> &) ?\w+[,)]", signature)
        given, tensors, scalars = [], 0, 0
        for kind in kinds:
            if kind == "double":
                given.append(f"scalars[{scalars}]")
                scalars += 1
            elif "bool" in kind:
                given.append("std::vector<bool>(needs, needs + need_count)")
            else:
                given.append(f"tensor_of(in[{tensors}])")
                tensors += 1
        glue = f"""
            extern "C" void run(View *in, const double *scalars, const bool *needs, int need_count,
                                View *out, int *count, char *error)
            {{
                try {{
                    auto results = {part}({', '.join(given)});
                    *count = (int)results.size();
                    show(results, out);
                }} catch (const std::exception &e) {{
                    strncpy(error, e.what(), 999);
                }}
            }}"""
        source, library = folder / f"{part}.cpp", folder / f"{part}.so"
        # What emulator.h needs of the file's own types comes first.
        types = "template <class P> struct IsBfloat16;\n"
        source.write_text(types + f'#include "{HERE}/emulator.h"\n' + kernels + host + glue)
        subprocess.run([os.environ.get("CXX", "g++"), "-std=c++17", "-O1", "-ffp-contract=off", "-w", "-shared",
                        "-fPIC", "-o", library, source], check=True)
        return ctypes.CDLL(str(library)).run

    def call(self, part, tensors, scalars=(), needs=()):
        views = (View * len(tensors))()
        for view, t in zip(views, tensors):
            view.data, view.dtype, view.rank = t.data_ptr(), DTYPES.index(t.dtype), t.dim()
            view.sizes[:t.dim()], view.strides[:t.dim()] = t.shape, t.stride()
        out, count, error = (View * 64)(), ctypes.c_int(), ctypes.create_string_buffer(1000)
        self.functions[part](views, (ctypes.c_double * max(len(scalars), 1))(*scalars),
                             (ctypes.c_bool * max(len(needs), 1))(*needs), len(needs), out,
                             ctypes.byref(count), error)
        if error.value:
            raise ValueError(error.value.decode())
        return [self.tensor_of(view) for view in out[:count.value]]

    @staticmethod
    def tensor_of(view):
        if not view.data:
            return None
        shape, strides = view.sizes[:view.rank], view.strides[:view.rank]
        dtype = DTYPES[view.dtype]
        if 0 in shape:
            return torch.empty(shape, dtype=dtype)
        last = 1 + sum((n - 1) * s for n, s in zip(shape, strides))
        raw = ctypes.string_at(view.data, last * dtype.itemsize)
        return torch.frombuffer(bytearray(raw), dtype=dtype).as_strided(shape, strides)
