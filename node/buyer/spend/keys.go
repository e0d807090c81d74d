package spend

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
)

// ErrKey is returned for an API key that cannot be made or does not exist.
var ErrKey = errors.New("api key")

// Key is an API key: a token that may submit jobs within its own limits, and the peer's. Only the token's hash is
// stored.
type Key struct {
	Name    string    `json:"name"`
	Hash    sign.Hash `json:"hash"` // SHA-256 of the token, which has 256 random bits
	Limits  Limits    `json:"limits"`
	Created time.Time `json:"created"`
}

const (
	maxKeys = 1000
	// tokenPrefix makes the token of a key recognisable.
	tokenPrefix = "starling_"
)

var (
	keyName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	records = journal.Define[string, Key]("apikey")
)

// Ledger has the API keys and the limits of a peer. It may be used by many goroutines.
type Ledger struct {
	journal journal.Store
	genesis market.Genesis
	limits  Limits // over all keys
	jobs    Jobs

	changing chan struct{} // holds a token while a key is added or removed
	mu       sync.Mutex
	keys     map[string]Key // by name
}

// Load reads the keys in the journal.
func Load(ctx context.Context, s journal.Store, g market.Genesis, l Limits, jobs Jobs) (*Ledger, error) {
	k := &Ledger{
		journal: s, genesis: g, limits: l, jobs: jobs, changing: make(chan struct{}, 1), keys: map[string]Key{},
	}
	err := records.List(ctx, s, "", func(name string, key Key) error {
		k.keys[name] = key
		return nil
	})
	return k, err
}

// change runs do alone, and takes its key over once do has journalled it. A key without name is removed.
func (k *Ledger) change(ctx context.Context, name string, do func(b *journal.Batch) (Key, error)) error {
	k.changing <- struct{}{}
	defer func() { <-k.changing }()
	var b journal.Batch
	key, err := do(&b)
	if err == nil {
		err = b.Commit(ctx, k.journal)
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if delete(k.keys, name); key.Name != "" {
		k.keys[name] = key
	}
	return nil
}

// AddKey makes an API key and returns its token, which is shown this once. It returns ErrKey if there is one of that
// name.
func (k *Ledger) AddKey(ctx context.Context, name string, l Limits) (Key, string, error) {
	if !keyName.MatchString(name) {
		return Key{}, "", fmt.Errorf("%w: %.80q is not a name: want 1 to 63 of a-z, 0-9 and '-'", ErrKey, name)
	}
	var raw [32]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return Key{}, "", err
	}
	token := tokenPrefix + hex.EncodeToString(raw[:])
	made := Key{Name: name, Hash: sha256.Sum256([]byte(token)), Limits: l, Created: time.Now().UTC()}
	err := k.change(ctx, name, func(b *journal.Batch) (Key, error) {
		switch n := len(k.Keys()); {
		case k.has(name):
			return made, fmt.Errorf("%w: key %q exists already; remove it first", ErrKey, name)
		case n >= maxKeys:
			return made, fmt.Errorf("%w: %d keys, want fewer than %d", ErrKey, n, maxKeys)
		}
		records.Put(b, name, made)
		return made, nil
	})
	if err != nil {
		return Key{}, "", err
	}
	return made, token, nil
}

// RemoveKey deletes an API key. Its jobs continue. It returns ErrKey if no key has that name.
func (k *Ledger) RemoveKey(ctx context.Context, name string) error {
	return k.change(ctx, name, func(b *journal.Batch) (Key, error) {
		if !k.has(name) {
			return Key{}, fmt.Errorf("%w: no key is named %.80q", ErrKey, name)
		}
		records.Delete(b, name)
		return Key{}, nil
	})
}

func (k *Ledger) get(name string) (Key, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, ok := k.keys[name]
	return key, ok
}

func (k *Ledger) has(name string) bool {
	_, ok := k.get(name)
	return ok
}

// Keys lists the API keys by name.
func (k *Ledger) Keys() []Key {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.SortedFunc(maps.Values(k.keys), func(x, y Key) int { return cmp.Compare(x.Name, y.Name) })
}

// KeyOf finds the key that a token belongs to. A comparison of hashes reveals nothing about a token.
func (k *Ledger) KeyOf(token string) (name string, ok bool) {
	if !strings.HasPrefix(token, tokenPrefix) {
		return "", false
	}
	h := sign.Hash(sha256.Sum256([]byte(token)))
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range k.keys {
		if key.Hash == h {
			return key.Name, true
		}
	}
	return "", false
}
