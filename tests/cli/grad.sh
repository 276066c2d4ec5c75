# The gradient of a formula, as text.
ogive grad 'x * sigmoid(x)' x
ogive grad 'mean((x - y)**2)' x y
ogive grad 'softmax(x, 1), t * x' x
ogive grad 'x**3 / -y' y
ogive grad 'layer_norm(x, 8, w)' w
echo 'linear(x, w)' | ogive grad -f - w
ogive grad 'x'
ogive grad 'x' y
ogive grad 'sigmod(x)' x
