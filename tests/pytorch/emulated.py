# SPDX-License-Identifier: MIT
"""Runs an emitted file on the CPU: torch_shim.h stands in for PyTorch's C++, and units are compiled
and run by what stands in for NVRTC and the driver in the library's own tests (tests/cuda).
`Emulated(path)` takes and gives PyTorch's CPU tensors."""
import concurrent.futures
import ctypes
import functools
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import torch

HERE = pathlib.Path(__file__).resolve().parent
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
ROOT = HERE.parents[1]
BUILT = next((folder for folder in (ROOT / "build/tests", ROOT / "build/test/gcc/tests")
              if folder.exists()), ROOT)
LIBRARIES = {name: BUILT / f"libogive_fake_{name}.so" for name in ("cuda", "nvrtc")}


class Map(ctypes.Structure):
    """og_hopper_map of cuda_shapes.h"""
    _fields_ = [(name, ctypes.c_int64) for name in ("columns", "rows", "depth", "pitch", "slab")] + [
        (name, ctypes.c_int32) for name in ("bytes", "box_columns", "box_rows", "box_depth")]


class Tiles(ctypes.Structure):
    """og_tiles of shapes_maps.cuh"""
    _fields_ = [("at", ctypes.c_int), ("bytes", ctypes.c_int), ("rank", ctypes.c_int), ("extents", ctypes.c_uint64 * 5),
                ("pitches", ctypes.c_uint64 * 4), ("box", ctypes.c_uint32 * 5), ("steps", ctypes.c_uint32 * 5),
                ("swizzle", ctypes.c_int), ("promotion", ctypes.c_int)]


class Launch(ctypes.Structure):
    """CUlaunchConfig"""
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
                ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)]


class Attribute(ctypes.Structure):
    """CUlaunchAttribute"""
    _fields_ = [("id", ctypes.c_int), ("padding", ctypes.c_int), ("allowed", ctypes.c_int),
                ("rest", ctypes.c_char * 60)]


LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int, ctypes.c_int64,
                          ctypes.c_int, ctypes.c_void_p)
MAP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Map), ctypes.c_void_p)
TILES = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Tiles), ctypes.c_void_p)


def check(result):
    if result:
        raise RuntimeError(f"error {result} of the driver's stand-in")


@functools.lru_cache(maxsize=None)
def start_driver():
    """The stand-in, with a current context."""
    cuda, context = ctypes.CDLL(str(LIBRARIES["cuda"])), ctypes.c_void_p()
    check(cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
          or cuda.cuCtxPushCurrent_v2(context))
    return cuda


class Unit:
    """A unit's source, compiled for the CPU: `address` is that of its ogive_run()."""

    def __init__(self, source, folder, name, entry="ogive_run"):
        image = compile_source(LIBRARIES["nvrtc"], source, b"--fmad=false", b"--gpu-architecture=sm_90a")
        path = folder / f"{name}.so"
        path.write_bytes(image)
        self.cuda, self.module = start_driver(), ctypes.c_void_p()
        check(self.cuda.cuModuleLoadDataEx(ctypes.byref(self.module), image, 0, None, None))
        self.library = ctypes.CDLL(str(path))
        self.callbacks = LAUNCH(self.launch), MAP(self.map), TILES(self.tiles)
        host = (ctypes.c_void_p * 3).in_dll(self.library, "og_shim_host")
        host[:] = [ctypes.cast(callback, ctypes.c_void_p).value for callback in self.callbacks]
        self.address = ctypes.cast(self.library[entry], ctypes.c_void_p).value
        self.launched = []

    def launch(self, kernel, blocks, threads, shared, overlaps, argument):
        function, attribute = ctypes.c_void_p(), Attribute(id=6, allowed=1)
        config = Launch(grid=(blocks, 1, 1), block=(threads, 1, 1), shared=shared,
                        attributes=ctypes.addressof(attribute), count=overlaps)
        arguments = (ctypes.c_void_p * 1)(argument)
        self.launched.append(kernel.decode())
        most_shared = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        return (self.cuda.cuModuleGetFunction(ctypes.byref(function), self.module, kernel)
                or self.cuda.cuFuncSetAttribute(function, most_shared, ctypes.c_int(int(shared)))
                or self.cuda.cuLaunchKernelEx(ctypes.byref(config), function, arguments, None))

    def map(self, to, of, address):
        m = of[0]
        return self.cuda.cuTensorMapEncodeTiled(
            ctypes.c_void_p(to), 6 if m.bytes == 2 else 7, 3, ctypes.c_void_p(address),
            (ctypes.c_uint64 * 3)(m.columns, m.rows, m.depth), (ctypes.c_uint64 * 2)(m.pitch, m.slab),
            (ctypes.c_uint32 * 3)(m.box_columns, m.box_rows, m.box_depth), (ctypes.c_uint32 * 3)(1, 1, 1),
            0, 3, 3, 0)


    def tiles(self, to, of, address):
        m = of[0]
        return self.cuda.cuTensorMapEncodeTiled(
            ctypes.c_void_p(to + m.at), 6 if m.bytes == 2 else 7, m.rank, ctypes.c_void_p(address), m.extents, m.pitches,
            m.box, m.steps, 0, m.swizzle, m.promotion, 0)


# Tensor maps of a file that is made for its shapes, here.
TILES_HERE = """struct og_tiles {
    int at, bytes, rank;
    uint64_t extents[5], pitches[4];
    uint32_t box[5], steps[5];
    int swizzle, promotion;
};
static int og_add_map(og_args &a, const og_tiles &of, const char *address)
{
    return og_shim_host.tiles(&a, &of, address);
}
"""


# A body's own numbers, of some size.
BODIES = {
    "vectors": {"OG_LEAD": 0, "OG_OUTER": 1, "OG_BATCH": 1},
    "rows": {"OG_GROUP": 32, "OG_VECTORS": 2, "OG_STEPS": 2, "OG_FLIGHT": 1, "OG_KEEPS": 1, "OG_FLAT": 1,
             "OG_WHOLE": 1},
    "rows_split": {"OG_GROUP": 256, "OG_VECTORS": 1, "OG_STEPS": 32, "OG_FLIGHT": 4, "OG_KEEPS": 0,
                   "OG_FLAT": 1, "OG_WHOLE": 0, "OG_COMBINERS": 32, "OG_COMBINE_THREADS": 128},
}
for body in ("columns", "columns_tiles", "columns_split"):
    BODIES[body] = {"OG_X": 32, "OG_Y": 8, "OG_RUNS": 8, "OG_FLIGHT": 2, "OG_SHARED_BYTES": 48 << 10,
                    "OG_BLOCKS": 1}


PRODUCT = {"OG_PRODUCTS": 1, "OG_N_DIMS": 1, "OG_BATCH_DIMS": 0, "OG_ALONG_LEFT": 0, "OG_ALONG_RIGHT": 2,
           "OG_ENDS_ROWS": 0, "OG_COMBINERS": 32, "OG_COMBINE_THREADS": 128, "OG_V": 4}
BODIES["product_tiles"] = {
    **PRODUCT, "OG_TM": 8, "OG_TN": 8, "OG_LANES_N": 8, "OG_WARPS_M": 4, "OG_WARPS_N": 2, "OG_BK": 16, "OG_BLOCKS": 1,
    "OG_LEVELS": 3, "OG_SPLIT": 0}
for body in ("mma_pairs", "mma_halves"):
    BODIES[body] = {**PRODUCT, "OG_BK": 64, "OG_QUADS": 2, "OG_REDO_BYTES": 99344, "OG_BM": 64, "OG_BN": 64,
                    "OG_STAGES": 2, "OG_SHARED_BYTES": 99 << 10, "OG_PAIRS": int(body == "mma_pairs"), "OG_BFLOAT": 0,
                    "OG_SPLIT_KEEPS": 4, "OG_SPLIT_PLANES": 0, "OG_SPLIT_SHUFFLES": 0, "OG_SPLIT_WIDENS": 0}


def numbers_of(body, form, operands):
    """Numbers that a unit may be asked for: two dims, every operand a neighbour along the vectors."""
    kept = 2 if body == "vectors" else 1
    element = {"og_float32": "float", "og_float64": "double"}.get(form, "uint16_t")
    numbers = {"OG_FORM": form, "OG_MOVES": ",".join("3" * operands), "OG_MOTIONS": ",".join("1" * operands),
               "BODY": body, "OG_BODY": 2 << list(BODIES).index(body), "OG_IS_DOUBLE": int(form == "og_float64"),
               "OG_INDEX_BITS": 32, "OG_DIMS": 2, "OG_KEPT_DIMS": kept,
               "OG_VECTOR_DIM": 0 if body.startswith("columns") else 1, "OG_V": 2, "OG_THREADS": 256,
               "OG_LEFT": element, "OG_RIGHT": element, **BODIES[body]}
    return "".join(f"{name} {value}\n" for name, value in numbers.items())


NVRTC = os.environ.get("OGIVE_TEST_NVRTC")  # the real one


def compile_unit(module, name, numbers, arch):
    """Has NVRTC compile a unit's device code."""
    text = module.UNITS[name]
    module.UNITS[name] = text[:text.index('#include "pytorch/')]
    compile_source(NVRTC, module._source(name, numbers), b"--fmad=false", b"--std=c++17", b"-diag-suppress=177",
                   f"--gpu-architecture=sm_{arch}".encode())
    module.UNITS[name] = text


def compile_source(library, source, *options):
    nvrtc, program = ctypes.CDLL(str(library)), ctypes.c_void_p()
    given, size = (ctypes.c_char_p * len(options))(*options), ctypes.c_size_t()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"unit", 0, None, None))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), given)
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(max(size.value, 1))
    nvrtc.nvrtcGetProgramLog(program, log)
    if failed or b"warning" in log.value:
        raise RuntimeError(log.value.decode()[:4000])
    check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
    image = ctypes.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetCUBIN(program, image))
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return image.raw


# Kernels of a file without units: C++'s table of them, by their names here.
TYPES = {"float": 2, "c10::Half": 4, "c10::BFloat16": 4, "double": 2}  # and vectors a thread
NAMES = [[[f"{formula}_{dtype.replace('::', '_')}_{kind}" for kind in ("one", "many", "any")] for dtype in TYPES]
         for formula in ("Forward", "Backward")]

# PyTorch's, of what is before them in pointwise_source().
HALVES = """
namespace c10
{
struct Half {
    uint16_t x;
    Half() = default;
    __device__ Half(float value) : x(og_f16_from_f32(value)) {}
    __device__ operator float() const { return og_f32_from_f16(x); }
};
struct BFloat16 {
    uint16_t x;
    BFloat16() = default;
    __device__ BFloat16(float value) : x(og_bf16_from_f32(value)) {}
    __device__ operator float() const { return og_f32_from_bf16(x); }
};
}
"""


# The same for NVRTC, which has no headers.
DEVICE_TYPES = """
typedef int int32_t;
typedef long long int64_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
namespace c10
{
struct Half {
    uint16_t x;
    Half() = default;
    __device__ Half(float value) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(x) : "f"(value)); }
    __device__ operator float() const
    {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x));
        return value;
    }
};
struct BFloat16 {
    uint16_t x;
    BFloat16() = default;
    __device__ BFloat16(float value) : x((__float_as_uint(value) + 0x7fff) >> 16) {}
    __device__ operator float() const { return __uint_as_float((uint32_t)x << 16); }
};
}
"""


def math_text():
    """Functions of src/math, with those for the CPU."""
    include = re.compile(r'^#include "(math/\w+\.h)"$', re.M)
    math, texts = ["math/scalar_base.h", "math/half.h", "math/scalar_f32.h", "math/scalar_f64.h"], []
    for path in math:
        text = (ROOT / "src" / path).read_text()
        whole = lambda of: (ROOT / "src" / of[1]).read_text() if of[1] not in math else ""  # noqa: E731
        texts.append(include.sub("", include.sub(whole, text)))
    return "".join(texts)


def either(name):
    """og_sigmoid(x), of a float or a double."""
    return (f"template <class R, class... X> OG_FN auto og_{name}(R x, X... y)\n{{\n    if constexpr (sizeof(R) == 8)\n"
            f"        return og_{name}_f64(x, y...);\n    else\n        return og_{name}_f32(x, y...);\n}}\n")


def pointwise_source(module, for_device=False):
    """The CUDA source of a file without units: for NVRTC, or for what stands in for it."""
    args = re.sub(r"#include <.*\n|.*\bextern const void.*\n", "", module.ARGS)
    functions, formulas = module.KERNELS.split("\nstruct Forward {")
    formulas = "\nstruct Forward {" + formulas[:formulas.index("\n#define OF(")]
    formulas = re.sub(r"__global__ void __launch_bounds__\(128\) kernel\(const __grid_constant__ Args a\)",
                      "OG_FN void kernel(const Args &a)", formulas)
    assert "__global__" not in formulas
    for formula, dtypes in zip(("Forward", "Backward"), NAMES):
        for dtype, names in zip(TYPES, dtypes):
            for name, kind in zip(names, ("1, true", f"{TYPES[dtype]}, true", "1, false")):
                formulas += (f'extern "C" __global__ void __launch_bounds__(128) {name}(const __grid_constant__ Args a)\n'
                             f"{{\n    kernel<{formula}, {dtype}, {kind}>(a);\n}}\n")
    if for_device:
        return DEVICE_TYPES + args + functions + formulas
    called = sorted(set(re.findall(r"\bog_(\w+)\(", formulas)))
    return (math_text() + HALVES + (HERE / "unit_shim.h").read_text() + args + "".join(map(either, called)) + formulas)


class View(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int64), ("rank", ctypes.c_int64),
                ("sizes", ctypes.c_int64 * 8), ("strides", ctypes.c_int64 * 8), ("is_negative", ctypes.c_int64)]


def load(path):
    spec = importlib.util.spec_from_file_location("emitted", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


COMPILER = [os.environ.get("CXX", "g++"), "-std=c++17", "-O0", "-w", "-fPIC"]


@functools.lru_cache(maxsize=None)
def precompile_shim():
    """A folder with torch_shim.h and what the compiler makes of it, once: for most files that is
    more than the rest of them."""
    folder = tempfile.TemporaryDirectory(prefix="ogive-shim-")
    header = shutil.copy(HERE / "torch_shim.h", folder.name)
    subprocess.run([*COMPILER, "-x", "c++-header", header, "-o", f"{header}.gch"], check=True)
    return folder


class EmulatedShapes:
    """A file that is made for its shapes."""

    def __init__(self, path, folder):
        self.module, self.folder, self.units = load(path), pathlib.Path(folder), {}
        kernels = self.module.KERNELS
        for path in kernels:  # which for a GPU alone are shorter
            if path.startswith("math/"):
                kernels[path] = (ROOT / "src" / path).read_text()
        kernels["pytorch/launch.cuh"] = (HERE / "unit_shim.h").read_text()
        kernels["pytorch/shapes_maps.cuh"] = TILES_HERE
        self.module._unit = self.unit

    def unit(self, name):
        if name not in self.units:
            source = self.module._inline(self.module.UNITS[name], set())
            self.units[name] = Unit(source, self.folder, name)
        run = self.units[name].library.ogive_run
        run.restype, run.argtypes = ctypes.c_int64, [ctypes.c_void_p, ctypes.c_void_p]
        return run

    def call(self, part, tensors, needs=None, is_hopper=True):
        plan = getattr(self.module, part.upper())[0 if is_hopper else -1]
        dtype = self.module.DTYPE
        tensors = [self.module._check(*one, plan["alignment"], torch.device("cpu"))
                   for one in zip(tensors, "abcdefgh", plan["inputs"])]
        results = [torch.empty_strided(*layout, dtype=dtype).fill_(float("nan")) for layout in plan["results"]]
        space = torch.full((plan["workspace"] + 64,), 255, dtype=torch.uint8)
        space = space[-space.data_ptr() % 64:]
        self.module._launch(plan, tensors, results, space, None, needs or [True] * len(results))
        return results


class Emulated:
    def __init__(self, path, folder, parts=("forward", "backward"), change=None):
        """change: of the C++ of a file without units, (text, its replacement)."""
        self.module, self.folder = load(path), pathlib.Path(folder)
        if change:
            assert change[0] in self.module.HOST
            self.module.HOST = self.module.HOST.replace(*change)
        self.units = {}
        self.is_short = not hasattr(self.module, "UNITS")
        if self.is_short:
            self.unit = Unit(pointwise_source(self.module), self.folder, "kernels", "og_shim_host")
        for path in () if self.is_short else self.module.KERNELS:  # which for a GPU alone are shorter
            if path.startswith("math/"):
                self.module.KERNELS[path] = (ROOT / "src" / path).read_text()
        if not self.is_short:
            self.module.KERNELS["pytorch/launch.cuh"] = (HERE / "unit_shim.h").read_text()
            self.module.KERNELS["pytorch/launch_maps.cuh"] = ""
        precompile_shim()
        with concurrent.futures.ThreadPoolExecutor() as threads:  # each waits for a compiler
            built = threads.map(lambda part: self.build(part, pathlib.Path(folder)), parts)
            self.functions = dict(zip(parts, built))

    def build(self, part, folder):
        m = self.module
        host = m.ARGS + m.HOST if self.is_short else m.HOST_SHARED + getattr(m, f"HOST_{part.upper()}")
        signature = re.search(rf"^std::vector<at::Tensor> {part}\([^)]*\)", host, re.M)
        host = host if self.is_short else m._inline(host, set())
        host = re.sub(r"#include <(c10|ATen|torch|pybind11|std|cuda).*\n", "", host)
        if self.is_short:
            return self.build_short(part, folder, host)
        kinds = re.findall(r"(at::Tensor|double|vector<bool> &) ?\w+[,)]", signature[0])
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
        glue = self.glue(f"{part}({', '.join(given)})") + """
            extern "C" const char *missing_part(int part) { return missing_unit[part].c_str(); }
            extern "C" void add(const char *name, const char *numbers, int64_t run)
            {
                add_unit(name, numbers, run);
            }
            extern "C" const char *served_by(const char *name) { return served[name].c_str(); }"""
        library = self.compile(part, folder, host + glue)
        library.missing_part.restype = library.served_by.restype = ctypes.c_char_p
        return library

    def build_short(self, part, folder, host):
        numbers = re.search(r"double number\[(\d+)\]", host)
        table = re.sub(r"\[", "{", re.sub(r"\]", "}", str(NAMES).replace("'", '"')))
        host = re.sub(r"extern (const void .*);", lambda found: f"{found[1]} = {table};", host)
        direction = "true" if part == "backward" else "false"
        scalars = f", std::vector<double>(scalars, scalars + {numbers[1]})" if numbers else ""
        glue = """
            static std::vector<at::Tensor> tensors_of(View *in, int count)
            {
                std::vector<at::Tensor> tensors;
                for (int i = 0; i < count; i++)
                    tensors.push_back(tensor_of(in[i]));
                return tensors;
            }""" + self.glue(f"run({direction}, tensors_of(in, need_count){scalars})")
        library = self.compile(part, folder, host + glue)
        ctypes.c_void_p.in_dll(library, "og_launch").value = ctypes.cast(self.unit.callbacks[0], ctypes.c_void_p).value
        return library

    @staticmethod
    def glue(call):
        """What call() calls. Of a file without units need_count is the number of tensors."""
        return f"""
            extern "C" void run(View *in, const double *scalars, const bool *needs, int need_count,
                                View *out, int *count, char *error)
            {{
                try {{
                    auto results = {call};
                    *count = (int)results.size();
                    show(results, out);
                }} catch (const std::exception &e) {{
                    strncpy(error, e.what(), 999);
                }}
            }}"""

    @staticmethod
    def compile(part, folder, text):
        library, source = folder / f"{part}.so", folder / f"{part}.cpp"
        source.write_text(f'#include "{precompile_shim().name}/torch_shim.h"\n' + text)
        subprocess.run([*COMPILER, "-shared", "-o", library, source], check=True)
        return ctypes.CDLL(str(library))

    def add_unit(self, library):
        """Builds the unit that a call has found missing."""
        name, numbers = (library.missing_part(part).decode() for part in range(2))
        unit = Unit(self.module._source(name, numbers), self.folder, f"unit{len(self.units)}")
        self.units[name, numbers] = unit
        library.add(name.encode(), numbers.encode(), ctypes.c_int64(unit.address))

    def served_by(self, part, kernel):
        if self.is_short:
            return "vectors"
        return self.functions[part].served_by(kernel.encode()).decode()

    def call(self, part, tensors, scalars=(), needs=()):
        needs = [True] * len(tensors) if self.is_short else needs
        views = (View * len(tensors))()
        for view, t in zip(views, tensors):
            view.data, view.dtype, view.rank = t.data_ptr(), DTYPES.index(t.dtype), t.dim()
            view.sizes[:t.dim()], view.strides[:t.dim()] = t.shape, t.stride()
            view.is_negative = t.is_neg()
        out, count, error = (View * 64)(), ctypes.c_int(), ctypes.create_string_buffer(1000)
        self.functions[part].run(views, (ctypes.c_double * max(len(scalars), 1))(*scalars),
                             (ctypes.c_bool * max(len(needs), 1))(*needs), len(needs), out,
                             ctypes.byref(count), error)
        if error.value:
            raise ValueError(error.value.decode())
        if count.value == 0:
            self.add_unit(self.functions[part])
            return self.call(part, tensors, scalars, needs)
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
