# Sources, plans and compiled kernels without a GPU.
ogive emit 'x' x=4x4
ogive emit --cuda 'sigmoid(x)' x=8x8 | grep -c '__global__'
ogive emit --cuda 'sigmoid(x)' x=8x8 | head -1
ogive emit --cuda 'x + 1' x=0x4
ogive emit --cuda 'sigmod(x)' x=8x8
ogive emit --cuda 'x' x=8x8 --arch 9000
ogive explain 'x + 1' x=8x8 --device cuda | sed -E 's/.* [0-9]+ blocks? of .*/  LAUNCH/'
ogive explain 'x + 1' x=8x8 --arch 80 --json | grep assumed
ogive warm 'x + 1' x=8x8 --arch 90a
echo "exit $?"
ogive warm 'x + 1' x=8x8
export OGIVE_NVRTC=$FAKE_NVRTC
ogive warm 'x + 1' x=8x8 --arch 80 --arch sm_90a | sed 's/(.*)/(TIME)/'
ogive warm 'x + 1' x=16x16 --arch 90a | sed 's/(.*)/(TIME)/'
ogive warm 'x + 1' x=16x16 --arch 150 | sed 's/(.*)/(TIME)/' # NVRTC does not know it
ogive warm 'x + 1' x=0x16 --arch 90a | sed 's/(.*)/(TIME)/'
ls "$OGIVE_CACHE_DIR" | wc -l
OGIVE_CACHE_DIR=/proc/self ogive warm 'x + 2 * x' x=16x16 --arch 90a
echo "exit $?"
OGIVE_CACHE_DIR=$(printf 'a%.0s' {1..5000}) ogive warm 'x + 2 * x' x=16x16 --arch 90a
OGIVE_DUMP=dump ogive warm 'x + 1' x=16x16 --arch 90a > /dev/null
ls dump | sed 's/^[0-9a-f]*/KEY/'
# A file for PyTorch.
ogive emit --pytorch 'sigmoid(x)' | grep -cwE '^class ModelNew|pass'
ogive emit --pytorch 'z = linear(x, fc.weight, fc.bias); z * s' x=4x3 --init 'n, m, s' \
    --module 'fc=nn.Linear(n, m)' --scalar s -o model.py
sed -n '/^def _plain/,$p' model.py
sed -n '/^# Tensors/,/^# float32/p' model.py
ogive emit --pytorch 'x * s' --scalar s
ogive emit --pytorch 'x * s' --scalar t --init t
ogive emit --pytorch 'float16(x)'
ogive emit --pytorch 'x + fc.weight' --module fc
ogive emit --pytorch 'linear(x, w)' x=3x4 w=5x6
ogive emit --pytorch --cuda 'x' x=3
ogive emit --pytorch 'x' --gradient x
ogive emit --cuda 'x' x=3 -o kernel.cu
ogive emit --pytorch 'x * 2' --name Twice -o - | grep '^class'
ogive emit --pytorch 'x * 2' --name 'Twice(nn.Module)'
ogive emit --pytorch 'x * 2' --name class
ogive emit --pytorch 'x * w + b' x=8x16 w=16 b=16 # numbers, though shapes were meant
ogive emit --pytorch 'i * 2.5' i=8:int64
ogive emit --pytorch 'x * w + b' x=8x16 w=16:float32 b=16.0 | grep -c ModelNew
ogive emit --pytorch 'x' -o /no/such/folder/model.py
echo "exit $?"
# For some shapes, and one architecture.
ogive emit --pytorch 'softmax(x, 1)' x=64x1000 --for-shapes | sed -n '/^# On a GPU/,/^# What/p'
ogive emit --pytorch 'softmax(x, 1)' x=64x1000 --for-shapes --arch sm_90a | sed -n '/^# Kernels are/,/^import/p'
ogive emit --pytorch 'softmax(x, 1)' x=64x1000 --for-shapes --arch 80
ogive emit --pytorch 'softmax(x, 1)' x=64x1000 --arch 90
ogive emit --pytorch 'softmax(x, 1)' --for-shapes
echo "exit $?"
