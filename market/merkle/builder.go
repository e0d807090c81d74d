package merkle

import "github.com/starling-network/starling/market/sign"

// Builder builds a tree over nodes while they come, so that hardly anything is left to hash when the last has come. Its
// nodes are as for [Over].
type Builder struct {
	levels [][]sign.Hash
	split  func(n int, do func(from, to int))
}

// NewBuilder is a builder of a tree of n nodes. split runs n pieces of work in ranges, possibly in parallel, and
// returns after all of them. It is optional; if nil, the work runs sequentially.
func NewBuilder(n int, split func(n int, do func(from, to int))) *Builder {
	b := &Builder{split: split}
	if split == nil {
		b.split = func(n int, do func(from, to int)) { do(0, n) }
	}
	for {
		b.levels = append(b.levels, make([]sign.Hash, 0, n))
		if n <= 1 {
			return b
		}
		n = (n + 1) / 2
	}
}

// Add appends nodes and hashes each level that they complete. It keeps no reference to them.
func (b *Builder) Add(nodes []sign.Hash) {
	b.levels[0] = append(b.levels[0], nodes...)
	for k := 0; len(b.levels[k]) > 1; k++ {
		if !b.rise(k) {
			return
		}
	}
}

// rise hashes the pairs of a level that are not hashed yet, and reports whether there were any.
func (b *Builder) rise(k int) bool {
	if k+1 == len(b.levels) {
		b.levels = append(b.levels, nil)
	}
	level, done, have := b.levels[k], len(b.levels[k+1]), len(b.levels[k])/2
	if have <= done {
		return false
	}
	up := append(b.levels[k+1], make([]sign.Hash, have-done)...)
	b.split(have-done, func(from, to int) {
		for i := done + from; i < done+to; i++ {
			up[i] = hashNode(level[2*i], level[2*i+1])
		}
	})
	b.levels[k+1] = up
	return true
}

// Len is how many nodes were added.
func (b *Builder) Len() int { return len(b.levels[0]) }

// Tree returns the tree over all added nodes. No nodes may be added afterwards.
func (b *Builder) Tree() *Tree {
	if b.Len() == 0 {
		return &Tree{}
	}
	k := 0
	for ; len(b.levels[k]) > 1; k++ {
		b.rise(k)
		if n := len(b.levels[k]); n%2 == 1 {
			b.levels[k+1] = append(b.levels[k+1], b.levels[k][n-1])
		}
	}
	return &Tree{levels: b.levels[:k+1]}
}
