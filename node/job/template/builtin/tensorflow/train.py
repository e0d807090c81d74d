"""Learns the sine of a sum with TensorFlow, on a GPU if there is one: train.py [--steps N]"""

import argparse

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2000)
steps = parser.parse_args().steps
tf.random.set_seed(7)
w1 = tf.Variable(tf.random.normal([4, 64], stddev=0.5))
b1 = tf.Variable(tf.zeros([64]))
w2 = tf.Variable(tf.random.normal([64, 1], stddev=0.1))
weights = [w1, b1, w2]
speed = [tf.Variable(tf.zeros_like(w)) for w in weights]


@tf.function
def train():
    x = tf.random.normal([256, 4])
    with tf.GradientTape() as tape:
        y = tf.tanh(x @ w1 + b1) @ w2
        loss = tf.reduce_mean((y - tf.sin(tf.reduce_sum(x, axis=1, keepdims=True))) ** 2)
    for w, s, g in zip(weights, speed, tape.gradient(loss, weights)):
        s.assign(0.9 * s + g)
        w.assign_sub(0.02 * s)
    return loss


first = train()
for _ in range(steps):
    loss = train()
assert loss < first / 2, (first, loss)
device = "gpu" if tf.config.list_physical_devices("GPU") else "cpu"
print(f"learned: loss {first.numpy():.4f} -> {loss.numpy():.4f} on {device}", flush=True)
