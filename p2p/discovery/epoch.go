package discovery

import (
	"slices"
	"time"

	"github.com/ipfs/go-cid"
)

// The keys of topics change with every epoch. An attacker that is to be nearest to a key must generate new peer IDs for
// it, and join the DHT with them before the epoch begins.
const (
	// epochLength is how long the keys of topics are the same. All peers of a network must agree on it.
	epochLength = time.Hour
	// epochAhead is the maximum difference of a finder's and a publisher's clock: each may be wrong by MaxSkew.
	epochAhead = 2 * MaxSkew
)

// epochOf returns the number of the epoch at a time.
func epochOf(t time.Time) int64 { return t.Unix() / int64(epochLength/time.Second) }

// epochs returns the epochs of now and of now + ahead, without duplicates.
func epochs(now time.Time, ahead time.Duration) []int64 {
	return slices.Compact([]int64{epochOf(now), epochOf(now.Add(ahead))})
}

// publishes returns the epochs under whose keys a record is stored. It includes the next epoch early enough that all
// records, which are pushed at intervals, are stored before the first lookup.
func (d *Discovery) publishes(now time.Time) []int64 { return epochs(now, d.cfg.Validity/2+epochAhead) }

// topicKeysAt are the DHT keys of r at a time.
func (d *Discovery) topicKeysAt(r Record, now time.Time) (keys []cid.Cid) {
	for _, e := range d.publishes(now) {
		keys = append(keys, r.topicKeys(d.cfg.Network, shardOf(d.h.ID(), d.cfg.Shards), e)...)
	}
	return keys
}

// findKeys returns the DHT keys of a topic's publishers at a time: of all shards, in the epoch and, shortly before the
// next one, also in that.
func (d *Discovery) findKeys(t Topic, now time.Time) (keys []cid.Cid) {
	for _, e := range epochs(now, epochAhead) {
		for shard := range d.cfg.Shards {
			keys = append(keys, topicKey(d.cfg.Network, t, shard, e))
		}
	}
	return keys
}
