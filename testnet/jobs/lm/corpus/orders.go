package corpus

import "math"

// Orders are the bits per byte on heldOut of models that count, in the training texts, how often each byte follows the
// last 0, 1 and 2 bytes. Each interpolates with the one below it by Witten and Bell's method C (IEEE Trans. Inf. Theory
// 37, 1991), down to the uniform distribution: a byte that followed a context c times of n, with t different followers,
// has probability (c + t·p')/(n + t), p' being the lower order's.
func Orders(training [][]byte, heldOut []byte) [3]float64 {
	two := make([]*follows, 1<<16) // by the last two bytes, the newest lowest
	for _, text := range training {
		var last uint16
		for _, b := range text {
			if two[last] == nil {
				two[last] = new(follows)
			}
			two[last].counts[b]++
			last = last<<8 | uint16(b)
		}
	}
	var zero follows
	one := make([]follows, 256)
	for last, f := range two {
		if f == nil {
			continue
		}
		for b, n := range f.counts {
			zero.counts[b] += n
			one[last&0xff].counts[b] += n
		}
		f.total()
	}
	zero.total()
	for i := range one {
		one[i].total()
	}
	var bits [3]float64
	var last uint16
	for _, b := range heldOut {
		p := 1.0 / 256
		for n, f := range [3]*follows{&zero, &one[last&0xff], two[last]} {
			p = f.probability(b, p)
			bits[n] -= math.Log2(p)
		}
		last = last<<8 | uint16(b)
	}
	for i := range bits {
		bits[i] /= float64(max(1, len(heldOut)))
	}
	return bits
}

// follows counts the bytes after one context.
type follows struct {
	counts        [256]uint32
	sum, distinct uint64
}

func (f *follows) total() {
	for _, n := range f.counts {
		if n > 0 {
			f.sum += uint64(n)
			f.distinct++
		}
	}
}

func (f *follows) probability(b byte, lower float64) float64 {
	if f == nil || f.sum == 0 {
		return lower
	}
	return (float64(f.counts[b]) + float64(f.distinct)*lower) / float64(f.sum+f.distinct)
}
