package model

// context is the text before the next byte, kept up to date byte by byte.
type context struct {
	last uint64 // the last eight bytes, the newest lowest
	word uint64 // hash of the incomplete identifier and the byte before it; 0 between identifiers
}

// reach is the maximum length of context read back when it starts in the middle of a text.
const reach = 256

func contextAt(text []byte, at int) context {
	var c context
	for _, b := range text[max(0, at-reach):at] {
		c.push(b)
	}
	return c
}

func (c *context) push(b byte) {
	switch ident := b == '_' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'; {
	case !ident:
		c.word = 0
	case c.word == 0:
		c.word = mix(c.last&0xff<<8|uint64(b)) | 1
	default:
		c.word = mix(c.word+uint64(b)) | 1
	}
	c.last = c.last<<8 | uint64(b)
}

// mix is the finaliser of MurmurHash3.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// blocks returns the start of the 16 neighbouring weights of every feature for one half of the byte b. If half is 1,
// only the other half of b matters; if half is 0, none of it. Blocks begin anywhere: most of a block is never used, and
// weights of another block may be there.
func (c *context) blocks(out *[Features]uint32, half int, b byte, bits int) {
	var sub uint64
	if half == 1 {
		sub = uint64(b>>4) + 1
	}
	shift := 64 - uint(bits)
	for n := range Features - 1 {
		h := mix(c.last&(1<<(8*n)-1) + uint64(n+1)<<56 + sub<<48)
		out[n] = uint32(h >> shift)
	}
	word := c.word
	if word == 0 {
		word = c.last & (1<<48 - 1)
	}
	h := mix(word + 7<<56 + sub<<48)
	out[Features-1] = uint32(h >> shift)
}
