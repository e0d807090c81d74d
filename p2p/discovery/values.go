package discovery

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	dht "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p/core/routing"
)

// Values is a kind of value that the DHT stores beside peers' records, under application-defined keys. All peers of a
// network store the same kinds: a peer stores no unknown kind. A value carries no signature of the DHT, so Check
// depends on the value alone.
//
//	/<name>/<key bytes> → value, the best by Better
type Values struct {
	Name     string // [a-z-]{1,32}
	MaxKey   int    // bytes
	MaxValue int    // bytes
	// MaxStored bounds this peer's copies for others, in bytes. Beyond it, values farthest from this peer are removed
	// first: nearer peers hold them.
	MaxStored int64
	// Check refuses a value. It is called for every value that is stored, from any peer, and on every read, from many
	// goroutines.
	Check func(key, value []byte) error
	// Better returns the index of the best of several unchecked values, or an error if none is valid. All peers must
	// choose the same. It is called concurrently and must not block.
	Better func(key []byte, values [][]byte) (int, error)
}

var valuesName = regexp.MustCompile(`^[a-z-]{1,32}$`)

// check refuses a configuration that cannot work.
func (v Values) check() error {
	if !valuesName.MatchString(v.Name) || v.Name == namespace || v.MaxKey < 1 || v.MaxValue < 1 || v.MaxStored < 1 ||
		v.Check == nil || v.Better == nil {
		return fmt.Errorf("bad discovery configuration: values %q", v.Name)
	}
	return nil
}

func (v Values) key(key []byte) string { return "/" + v.Name + "/" + string(key) }

// Validate implements record.Validator.
func (v Values) Validate(key string, value []byte) error {
	k, err := v.bare(key)
	if err != nil {
		return err
	}
	if len(value) > v.MaxValue {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrMalformed, len(value), v.MaxValue)
	}
	return v.Check(k, value)
}

// Select implements record.Validator.
func (v Values) Select(key string, values [][]byte) (int, error) {
	k, err := v.bare(key)
	if err != nil {
		return 0, err
	}
	offered := make([][]byte, len(values))
	for i, value := range values {
		if len(value) <= v.MaxValue {
			offered[i] = value
		}
	}
	return v.Better(k, offered)
}

func (v Values) bare(key string) ([]byte, error) {
	k, ok := strings.CutPrefix(key, "/"+v.Name+"/")
	if !ok || len(k) > v.MaxKey {
		return nil, fmt.Errorf("%w: key of %d bytes", ErrMalformed, len(key))
	}
	return []byte(k), nil
}

// PutValue stores a value with the peers closest to its key. It fails where this peer holds a better one.
// ErrNoPeers when no other peer is known.
func (d *Discovery) PutValue(ctx context.Context, name string, key, value []byte) error {
	v, err := d.values(name)
	if err != nil {
		return err
	}
	if d.dht.RoutingTable().Size() == 0 {
		return ErrNoPeers
	}
	if err := d.dht.PutValue(ctx, v.key(key), value); err != nil {
		return fmt.Errorf("storing a value of %s: %w", name, err)
	}
	return nil
}

// GetValue finds the best value under a key that some peers have. ErrNotFound when there is none.
func (d *Discovery) GetValue(ctx context.Context, name string, key []byte) ([]byte, error) {
	v, err := d.values(name)
	if err != nil {
		return nil, err
	}
	if d.dht.RoutingTable().Size() == 0 {
		return nil, ErrNoPeers
	}
	value, err := d.dht.GetValue(ctx, v.key(key), dht.Quorum(quorum))
	switch {
	case errors.Is(err, routing.ErrNotFound):
		return nil, ErrNotFound
	case err != nil:
		return nil, fmt.Errorf("looking up a value of %s: %w", name, err)
	}
	return value, v.Validate(v.key(key), value)
}

func (d *Discovery) values(name string) (Values, error) {
	for _, v := range d.cfg.Values {
		if v.Name == name {
			return v, nil
		}
	}
	return Values{}, fmt.Errorf("%w: no values of the name %q", ErrMalformed, name)
}
