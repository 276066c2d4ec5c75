# Where NVRTC is looked for. The library that stands in for it says that it is any version.
unset OGIVE_NVRTC VIRTUAL_ENV CONDA_PREFIX CUDA_HOME CUDA_PATH LD_LIBRARY_PATH
here=$PWD
put() { # FOLDER NAME
    mkdir -p "$1" && cp "$FAKE_NVRTC" "$1/$2"
}
found() { # what info says, with this folder's name out
    "$@" ogive info | sed -n "s|$here/||; s/^NVRTC  *//p"
}
after_loader() { # EXPECTED COMMAND...: the loader's own, where it has one, comes first
    if /sbin/ldconfig -p | grep -qE 'libnvrtc\.so\.1[2-5]'; then echo "$1"; else found "${@:2}"; fi
}
targets=cuda/targets/x86_64-linux/lib
[ "$(uname -m)" != aarch64 ] || targets=cuda/targets/sbsa-linux/lib
put venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib libnvrtc.so.12
put new/lib/python3.12/site-packages/nvidia/cu13/lib libnvrtc.so.13
put conda/lib libnvrtc.so.13
put both/lib libnvrtc.so.12 && put both/lib libnvrtc.so.13
put cuda/lib64 libnvrtc.so.12
put loader libnvrtc.so.13
put broken/lib unused && echo nothing >broken/lib/libnvrtc.so.13
export OGIVE_LIBCUDA=$FAKE_CUDA
echo '# PyPI, for CUDA 12 and 13; conda; the toolkit; the loader'
found env VIRTUAL_ENV="$here/venv" OGIVE_SHIM_NVRTC=12.9
found env VIRTUAL_ENV="$here/new"
found env CONDA_PREFIX="$here/conda"
after_loader '12.0, cuda/lib64/libnvrtc.so.12' env CUDA_HOME="$here/cuda" OGIVE_SHIM_NVRTC=12.0
after_loader '12.0, cuda/lib64/libnvrtc.so.12' env CUDA_PATH="$here/cuda" OGIVE_SHIM_NVRTC=12.0
rm -r cuda && put $targets libnvrtc.so.13
after_loader '13.0, libnvrtc.so.13' env CUDA_HOME="$here/cuda" | sed "s|$targets/||"
found env LD_LIBRARY_PATH="$here/loader"
echo '# in this order'
found env VIRTUAL_ENV="$here/new" CONDA_PREFIX="$here/conda" CUDA_HOME="$here/cuda"
found env CONDA_PREFIX="$here/conda" LD_LIBRARY_PATH="$here/loader" CUDA_HOME="$here/cuda"
found env LD_LIBRARY_PATH="$here/loader" CUDA_HOME="$here/cuda"
found env OGIVE_NVRTC="$here/loader/libnvrtc.so.13" VIRTUAL_ENV="$here/new"
found env CONDA_PREFIX="$here/both" # the driver is for 13
echo '# packages that the process has loaded something from'
mkdir -p site-packages/numpy && cp "$FAKE_CUDA" site-packages/numpy/any.so
put site-packages/nvidia/cu13/lib libnvrtc.so.13
found env LD_PRELOAD="$here/site-packages/numpy/any.so"
echo '# what cannot be used is passed over, and told if it was asked for'
found env VIRTUAL_ENV="$here/broken" CONDA_PREFIX="$here/conda"
found env OGIVE_NVRTC="$here/broken/lib/libnvrtc.so.13" | sed "s|$here/||g"
found env OGIVE_NVRTC="$here/conda/lib/libnvrtc.so.13" OGIVE_SHIM_NVRTC=11.8 | sed "s|$here/||g"
