# Written and read back, by key, bare, and the only tensor of a file.
for dtype in float16 bfloat16 float32 float64; do
    ogive run 'x' x=3:$dtype -o one.safetensors
    head -c 72 one.safetensors | tail -c 64; echo '|'
    ogive run 'x' x=one.safetensors
done
ogive run 'w, b' w=2x2:float32 b=2:float16 -o model.safetensors:fc.weight -o model.safetensors:fc.bias
ogive run 'fc.weight * 1' model.safetensors
ogive run 'b' b=model.safetensors:fc.bias
ogive run 'x, x + 1' x=2:float32 -o all.safetensors
ogive run 'result.1 - result.0' all.safetensors
