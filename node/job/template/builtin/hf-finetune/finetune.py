"""Fine-tunes a causal language model of the Hugging Face hub on /data/text.txt and keeps it in /out:

    finetune.py --model NAME --steps N      the model "tiny" is a new GPT-2 of bytes with two layers, read from nowhere
"""

import argparse

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--steps", type=int, required=True)
o = parser.parse_args()
torch.manual_seed(7)
device = "cuda" if torch.cuda.is_available() else "cpu"
text = open("/data/text.txt", encoding="utf-8").read()
if o.model == "tiny":
    tokenizer, tokens = None, list(text.encode())
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=2,
                                       bos_token_id=0, eos_token_id=0))
    width = 64
else:
    tokenizer = AutoTokenizer.from_pretrained(o.model)
    tokens = tokenizer(text)["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(o.model)
    width = 256
tokens = torch.tensor(tokens)
width = min(width, len(tokens) - 1)
model.to(device).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3 if o.model == "tiny" else 2e-5)
losses = []
for step in range(o.steps):
    starts = torch.randint(0, len(tokens) - width, (8,))
    batch = torch.stack([tokens[s : s + width] for s in starts]).to(device)
    loss = model(input_ids=batch, labels=batch).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 10 == 0:
        print(f"step {step} on {device}: loss {loss.item():.3f}", flush=True)
model.save_pretrained("/out")
if tokenizer:
    tokenizer.save_pretrained("/out")
assert losses[-1] < losses[0], losses
print(f"fine-tuned {o.model}: loss {losses[0]:.3f} -> {losses[-1]:.3f} on {device}", flush=True)
