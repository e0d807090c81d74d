package svm

import (
	"crypto/sha256"
	"errors"
	"sync"

	"github.com/starling-network/starling/market/sign"
)

// marker ends the hash input of an address that a program signs for.
const marker = "ProgramDerivedAddress"

// FindAddress is the canonical address that the program signs for with these seeds, and its bump: the highest with
// which
//
//	SHA-256( seeds ‖ bump u8 ‖ program[32] ‖ "ProgramDerivedAddress" )
//
// is no point of the curve, so that no key exists for it. Each seed has at most 32 bytes.
func FindAddress(program sign.Key, seeds ...[]byte) (sign.Key, uint8) {
	first := derive(program, 255, seeds) // the other candidates differ in the bump alone
	found.Lock()
	a, ok := found.at[first]
	found.Unlock()
	if ok {
		return a.key, a.bump
	}
	a = search(program, seeds)
	found.Lock()
	defer found.Unlock()
	if len(found.at) >= maxFound {
		clear(found.at)
	}
	found.at[first] = a
	return a.key, a.bump
}

// found caches addresses: each costs some checks of points on the curve, and every read of the chain needs the same
// few.
var found = struct {
	sync.Mutex
	at map[sign.Key]derived
}{at: map[sign.Key]derived{}}

const maxFound = 1024

type derived struct {
	key  sign.Key
	bump uint8
}

func search(program sign.Key, seeds [][]byte) derived {
	for bump := 255; bump >= 0; bump-- {
		if k := derive(program, uint8(bump), seeds); offCurve(k) {
			return derived{k, uint8(bump)}
		}
	}
	return derived{} // of 256 hashes half are points: this has a chance of 2^-256
}

func derive(program sign.Key, bump uint8, seeds [][]byte) sign.Key {
	h := sha256.New()
	for _, s := range seeds {
		h.Write(s)
	}
	h.Write([]byte{bump})
	h.Write(program[:])
	h.Write([]byte(marker))
	return sign.Key(h.Sum(nil))
}

func offCurve(k sign.Key) bool { return errors.Is(k.Check(), sign.ErrNotOnCurve) }

// Address is FindAddress without the bump.
func Address(program sign.Key, seeds ...[]byte) sign.Key {
	k, _ := FindAddress(program, seeds...)
	return k
}
