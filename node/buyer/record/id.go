package record

import (
	"crypto/rand"
	"encoding/base32"
	"strings"

	"github.com/starling-network/starling/market/sign"
)

// encoding writes ids: a letter, and ten bytes in base 32.
var encoding = base32.StdEncoding.WithPadding(base32.NoPadding)

func idOf(raw []byte) string { return "j" + strings.ToLower(encoding.EncodeToString(raw)) }

// NewID returns the id of a new job.
func NewID() string {
	var raw [10]byte
	_, _ = rand.Read(raw[:]) // never fails
	return idOf(raw[:])
}

// IDOf returns an id derived from a job's terms, for a job whose own id is taken here.
func IDOf(terms sign.Hash) string { return idOf(terms[:10]) }

// IsID reports whether a text is an id of NewID.
func IsID(id string) bool {
	text, ok := strings.CutPrefix(id, "j")
	raw, err := encoding.DecodeString(strings.ToUpper(text))
	return ok && err == nil && len(raw) == 10 && id == idOf(raw)
}
