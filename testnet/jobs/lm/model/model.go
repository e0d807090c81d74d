// Package model is a small byte-level language model that many machines can train together.
//
// Each byte is read as eight binary decisions, high bit first. A decision's probability is the logistic function of a
// sum of weights, one for each context: the last 0, 1, 2, 3, 4 and 5 bytes, and the identifier begun or else the last 6
// bytes. Context and bits decided so far pick the weight out of one hashed table; nothing resolves collisions, learning
// does. It is thus logistic regression on hashed n-grams (Weinberger et al., "Feature Hashing for Large Scale Multitask
// Learning", 2009), trained online with Adagrad (Duchi et al., 2011).
//
// Everything here gives the same bits on every machine and compiler: float32 with each rounding written out, no fused
// operations, no library logarithms on the way to a weight.
package model

import "math"

const (
	// Features is the number of contexts, and of weights in each sum.
	Features = 7
	// DefaultBits is the size of the table the demo uses: 2^21 weights, 6 MiB in a file.
	DefaultBits = 21
	// MinBits and MaxBits bound the table sizes that can be made or read.
	MinBits, MaxBits = 8, 22

	rate     = 0.2    // Adagrad's step
	gradient = 1e-3   // added under its root
	maxLogit = 15.875 // probabilities stay within 1.3e-7 of 0 and 1
)

// slot is one weight with its Adagrad sum of squared gradients.
type slot struct{ w, g float32 }

// Model is the table and the state of its training. It must not be used by several goroutines at once.
type Model struct {
	slots []slot
	mask  uint32
	bits  int
	// Round is the number of completed rounds.
	Round uint32
	// Bytes is the number of training bytes, of all workers together.
	Bytes uint64
	// Base is the sum of the weights file from which this model was trained.
	Base uint64
}

// New makes an untrained model of 2^bits weights. bits must be within MinBits and MaxBits.
func New(bits int) *Model {
	if bits < MinBits || bits > MaxBits {
		panic("model: table bits out of range")
	}
	return &Model{slots: make([]slot, 1<<bits), mask: 1<<bits - 1, bits: bits}
}

// Train trains on text[from:to] in order, with the text before from as context. It returns the mean bits per byte that
// the model predicted for each byte before training on it. progress is optional and is called about every 64 KiB.
func (m *Model) Train(text []byte, from, to int, progress func(done int, bits float64)) float64 {
	const every = 64 << 10
	var loss float64
	c := contextAt(text, from)
	for start := from; start < to; start += every {
		end := min(start+every, to)
		for _, b := range text[start:end] {
			loss += m.learn(&c, b)
			c.push(b)
		}
		if progress != nil {
			progress(end-from, loss/float64(end-from))
		}
	}
	m.Bytes += uint64(to - from)
	return loss / float64(max(1, to-from))
}

// Slice is the part of a shard of n bytes that a round trains on.
func Slice(n, round, rounds int) (from, to int) {
	return int(int64(n) * int64(round) / int64(rounds)), int(int64(n) * int64(round+1) / int64(rounds))
}

// Evaluate returns the mean bits per byte of a text, without training.
func (m *Model) Evaluate(text []byte) float64 {
	var loss float64
	c := contextAt(text, 0)
	for _, b := range text {
		loss += m.score(&c, b)
		c.push(b)
	}
	return loss / float64(max(1, len(text)))
}

// learn updates the weights of one byte. Each half of the byte has its weights in one block of 16 neighbours per
// feature, which is two cache lines.
func (m *Model) learn(c *context, b byte) (bits float64) {
	var block [Features]uint32
	for half := range 2 {
		c.blocks(&block, half, b, m.bits)
		node := uint32(1)
		for k := 3; k >= 0; k-- {
			bit := uint32(b>>(4*(1-half)+k)) & 1
			var q [Features]*slot
			var sum float32
			for f := range q {
				q[f] = &m.slots[(block[f]+node)&m.mask]
				sum += q[f].w
			}
			p := logistic(sum)
			bits += cost(p, bit)
			d := float32(bit) - p
			dd, step := float32(d*d), float32(rate*d)
			for _, s := range q {
				s.g += dd
				s.w += float32(step / float32(math.Sqrt(float64(s.g+gradient))))
			}
			node = node<<1 | bit
		}
	}
	return bits
}

func (m *Model) score(c *context, b byte) (bits float64) {
	var block [Features]uint32
	for half := range 2 {
		c.blocks(&block, half, b, m.bits)
		node := uint32(1)
		for k := 3; k >= 0; k-- {
			bit := uint32(b>>(4*(1-half)+k)) & 1
			var sum float32
			for f := range block {
				sum += m.slots[(block[f]+node)&m.mask].w
			}
			bits += cost(logistic(sum), bit)
			node = node<<1 | bit
		}
	}
	return bits
}

// cost is the code length of a bit. It is only reported, not used for training.
func cost(p float32, bit uint32) float64 {
	if bit == 0 {
		p = 1 - p
	}
	return -math.Log2(float64(p))
}
