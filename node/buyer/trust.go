package buyer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/replica"
)

const (
	kindTrust = "trust" // replica.Trust by provider
	// maxTrusted bounds the providers whose record is kept. One for whom there is no room stays without, and is always
	// checked.
	maxTrusted = 20_000
	maxTrust   = 256 // bytes of one record
)

// errTrust: the journal's record of a provider's results is malformed.
var errTrust = errors.New("record of a provider's results")

// trusts are the records of providers whose results were checked.
type trusts struct {
	changing sync.Mutex // held from reading a record until its change is in the journal; taken first

	mu sync.Mutex
	m  map[sign.Key]replica.Trust
}

func loadTrusts(ctx context.Context, st store.Store) (*trusts, error) {
	t := &trusts{m: map[sign.Key]replica.Trust{}}
	err := st.List(ctx, kindTrust, "", func(key string, value []byte) error {
		k, err := sign.ParseKey(key)
		if err != nil {
			return fmt.Errorf("%w: %w", errTrust, err)
		}
		t.m[k], err = unmarshalTrust(value)
		return err
	})
	return t, err
}

func unmarshalTrust(b []byte) (replica.Trust, error) {
	var r replica.Trust
	if len(b) > maxTrust {
		return r, fmt.Errorf("%w: %d bytes", errTrust, len(b))
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return replica.Trust{}, fmt.Errorf("%w: %w", errTrust, err)
	}
	if _, err := dec.Token(); err != io.EOF || r.Valid > replica.MaxTrust {
		return replica.Trust{}, fmt.Errorf("%w: %d valid results, or bytes after its end", errTrust, r.Valid)
	}
	return r, nil
}

// of is the record of a provider.
func (t *trusts) of(p sign.Key) replica.Trust {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.m[p]
}

// after returns the records that a verdict changes, with their writes for the journal. t.changing is held.
func (t *trusts) after(v replica.Verdict) (map[sign.Key]replica.Trust, []store.Put, error) {
	if v.Right < 0 {
		return nil, nil, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := map[sign.Key]replica.Trust{}
	var puts []store.Put
	for _, r := range v.Results {
		old, known := t.m[r.Provider]
		if !known && len(t.m)+len(changed) >= maxTrusted {
			continue
		}
		if changed[r.Provider] = old.Differed(); r.Output == v.Results[v.Right].Output {
			changed[r.Provider] = old.Agreed()
		}
		b, err := json.Marshal(changed[r.Provider])
		if err != nil {
			return nil, nil, err
		}
		puts = append(puts, store.Put{Kind: kindTrust, Key: r.Provider.String(), Value: b})
	}
	return changed, puts, nil
}

// change takes records over that are in the journal.
func (t *trusts) change(to map[sign.Key]replica.Trust) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, r := range to {
		t.m[k] = r
	}
}
