"""Learns the sine of a sum with JAX, on a GPU if there is one: train.py [--steps N]"""

import argparse

import jax
import jax.numpy as jnp

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2000)
steps = parser.parse_args().steps
k1, k2, key = jax.random.split(jax.random.PRNGKey(7), 3)
weights = {"w1": jax.random.normal(k1, (4, 64)) / 2, "b1": jnp.zeros(64), "w2": jax.random.normal(k2, (64, 1)) / 10}
speed = jax.tree_util.tree_map(jnp.zeros_like, weights)


def error(w, x):
    y = jnp.tanh(x @ w["w1"] + w["b1"]) @ w["w2"]
    return jnp.mean((y - jnp.sin(x.sum(axis=1, keepdims=True))) ** 2)


@jax.jit
def train(w, s, x):
    loss, g = jax.value_and_grad(error)(w, x)
    s = jax.tree_util.tree_map(lambda s, g: 0.9 * s + g, s, g)
    return jax.tree_util.tree_map(lambda w, s: w - 0.02 * s, w, s), s, loss


first = None
for step in range(steps):
    key, k = jax.random.split(key)
    weights, speed, loss = train(weights, speed, jax.random.normal(k, (256, 4)))
    first = first or float(loss)
assert loss < first / 2, (first, loss)
print(f"learned: loss {first:.4f} -> {float(loss):.4f} on {jax.devices()[0].platform}", flush=True)
