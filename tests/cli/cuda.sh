# A GPU, in the shape of the libraries that stand in for one.
export OGIVE_LIBCUDA=$FAKE_CUDA OGIVE_NVRTC=$FAKE_NVRTC
ogive run 'x * sigmoid(x) + y' x=3x4:float32 y=4:float16 --device cuda
ogive run 'x * sigmoid(x) + y' x=3x4:float32 y=4:float16 -o cpu.npy
ogive run 'x * sigmoid(x) + y' x=3x4:float32 y=4:float16 --device cuda:0 -o cuda.npy
cmp cpu.npy cuda.npy && echo same bits
ogive run 'sum(x, dim=1), x + 1, x' x=3x0:float32 --device cuda
ogive run 'mean((x - y)**2)' x=5x7 y=7 --gradient x --device cuda -o cuda.npy
ogive run 'mean((x - y)**2)' x=5x7 y=7 --gradient x -o cpu.npy
cmp cpu.npy cuda.npy && echo same bits
ogive run 'x' x=1.0 --device cuda:7
echo "exit $?"
ogive explain 'x * sigmoid(x) + y' x=1024x1024 y=1024x1024 --device cuda |
    sed -E 's/.* [0-9]+ blocks? of .*/  LAUNCH/'
ogive explain 'x + y' x=64x64 y=64x64 --device cuda --json | grep -E '"(name|floor_seconds)"' |
    sed 's/\(floor_seconds": [0-9]\).*/\1.../'
ogive info | sed -n "s|$OGIVE_LIBCUDA|DRIVER|; s|$OGIVE_NVRTC|NVRTC|; s|$OGIVE_CACHE_DIR|CACHE|; \
/^device cuda/p; /^CUDA driver/p; /^NVRTC/p; /^kernel cache/p"
ogive bench one-element --device cuda | sed 's/  .*//'
OGIVE_SHIM_FAIL=cuInit ogive run 'x' x=1.0 --device cuda 2>&1 | sed "s|$OGIVE_LIBCUDA|DRIVER|"
OGIVE_SHIM_FAIL=cuLaunchKernel:1:700 ogive run 'x' x=1.0 --device cuda
ogive check relu sigmoid --quick --device cuda
ogive check --device cuda:1
