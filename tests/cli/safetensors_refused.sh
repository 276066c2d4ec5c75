try() { ogive "$@"; echo "exit $?"; }
ogive run 'w, b' w=2x2:float32 b=2:float32 -o m.safetensors:fc.weight -o m.safetensors:fc.bias
cp m.safetensors n.safetensors
try run 'w' w=m.safetensors
try run 'w' w=m.safetensors:fc.wieght
try run 'w' w=m.safetensors:other
try run 'fc.wieght + 1' m.safetensors
try run 'fc.weight + 1' m.safetensors n.safetensors
printf 'more' >> n.safetensors
try run 'fc.weight' n.safetensors
header='{"i":{"dtype":"U64","shape":[1],"data_offsets":[0,8]}}'
printf "\\$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0%s12345678" "$header" > i.safetensors
try run 'i' i.safetensors
printf '\377\377\377\377\377\377\377\377{}' > bad.safetensors
try run 'x' x=bad.safetensors:x
