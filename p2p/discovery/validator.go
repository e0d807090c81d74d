package discovery

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// validator validates records before the DHT stores or returns them.
type validator struct {
	network string
	known   *signed
}

// Validate checks everything that can be checked about one record.
func (v validator) Validate(key string, value []byte) error {
	_, err := v.decode(key, value)
	return err
}

// Select returns the index of the record to believe: valid and with the highest sequence.
func (v validator) Select(key string, values [][]byte) (int, error) {
	best, seq := -1, uint64(0)
	for i, value := range values {
		r, err := v.decode(key, value)
		if err != nil {
			continue
		}
		// Two records with one sequence are their signer's mistake; all peers still choose the same.
		if best < 0 || r.Seq > seq || r.Seq == seq && bytes.Compare(value, values[best]) > 0 {
			best, seq = i, r.Seq
		}
	}
	if best < 0 {
		return 0, fmt.Errorf("%w: none of %d is valid", ErrNotFound, len(values))
	}
	return best, nil
}

func (v validator) decode(key string, value []byte) (Record, error) {
	id, ok := strings.CutPrefix(key, "/"+namespace+"/")
	if !ok {
		return Record{}, fmt.Errorf("%w: key is not of a record", ErrMalformed)
	}
	p, err := peer.IDFromBytes([]byte(id))
	if err != nil {
		return Record{}, fmt.Errorf("%w: key: %w", ErrMalformed, err)
	}
	return decode(v.network, p, value, time.Now(), v.known)
}
