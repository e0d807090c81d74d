package match

import (
	"cmp"
	"slices"
)

// item is a row with its place: score, then tie-break, in one number.
type item struct {
	key uint64
	row *row
}

// top keeps the items with the largest keys, as a heap with the smallest of them in front.
type top struct {
	keep  int
	items []item
}

func newTop(keep int) *top { return &top{keep: keep, items: make([]item, 0, min(max(keep, 0), 4096))} }

func (t *top) offer(key uint64, row *row) {
	if len(t.items) < t.keep {
		t.items = append(t.items, item{key, row})
		for i := len(t.items) - 1; i > 0; {
			up := (i - 1) / 2
			if t.items[up].key <= t.items[i].key {
				break
			}
			t.items[up], t.items[i] = t.items[i], t.items[up]
			i = up
		}
		return
	}
	if t.keep < 1 || key <= t.items[0].key {
		return
	}
	t.items[0] = item{key, row}
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(t.items); child++ {
			if t.items[child].key < t.items[least].key {
				least = child
			}
		}
		if least == i {
			return
		}
		t.items[least], t.items[i] = t.items[i], t.items[least]
		i = least
	}
}

// sorted lists the items, largest key first, and among equal keys the earlier candidate.
func (t *top) sorted() []item {
	slices.SortFunc(t.items, func(a, b item) int {
		return cmp.Or(cmp.Compare(b.key, a.key), cmp.Compare(a.row.index, b.row.index))
	})
	return t.items
}
