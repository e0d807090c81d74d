package rewards_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

// vectors are what another implementation can be held against.
type vectors struct {
	Certificates string    `json:"certificates"` // of one unit in windows 5 and 7 of an epoch that has 5 to 14
	Names        []string  `json:"names"`
	Line         string    `json:"line"` // as in a table
	Table        string    `json:"table"`
	Payees       string    `json:"payees"` // of the emission; each provider is paid at SHA-256 of its key
	Sum          uint64    `json:"sum"`
	Root         sign.Hash `json:"root"`

	// Of a pool whose fees are 2 % of what is claimed, and a quarter of them the pool's.
	Guarded    []rewards.Guarded `json:"guarded"`
	PoolTable  string            `json:"pool_table"`
	PoolPayees string            `json:"pool_payees"`
	PoolRoot   sign.Hash         `json:"pool_root"`
}

func TestVectors(t *testing.T) {
	t.Parallel()
	cs, c := certificates(t, 5, 7)
	x, err := rewards.Count(epoch3, rewards.UnitKey{Provider: c.Provider.Key(), Unit: c.Unit}, cs)
	if err != nil {
		t.Fatal(err)
	}
	v := vectors{Certificates: hex.EncodeToString(rewards.MarshalCertificates(cs))}
	for _, c := range cs {
		v.Names = append(v.Names, c.Hash().String())
	}
	other := x
	other.Provider, other.Unit, other.Operations, other.Reads = sign.Key{9}, market.UnitID{8}, 1e12, 1e9
	shared := [rewards.Sources]uint64{1_000_000_007, 5}
	v.Line = hex.EncodeToString(rewards.NewTable(3, shared, []rewards.Tally{x}).Marshal()[56:])
	table := rewards.NewTable(3, shared, []rewards.Tally{x, other})
	v.Table = hex.EncodeToString(table.Marshal())
	a, err := table.Divide(0, []rewards.Tally{x, other}, rewards.Guards{}, func(k sign.Key) (sign.Key, bool) { return sign.Key(sign.Sum(k[:])), true })
	if err != nil {
		t.Fatal(err)
	}
	v.Payees, v.Sum, v.Root = hex.EncodeToString(a.Marshal()), a.Rewards().Sum, a.Rewards().Root
	guards := rewards.Guards{Terms: account.MintTerms{FeeBps: 200, PoolBps: 2500}, Claims: []rewards.Guarded{
		{ID: sign.Signature{2}, Slot: 1234, Net: 980_000_001, Keys: []sign.Key{{3}, {4}}}, {ID: sign.Signature{1}, Slot: 1235, Net: 4999, Keys: []sign.Key{{3}, {5}, {6}}}}}
	shared[1] = 10_000_019
	pool := rewards.NewTable(3, shared, []rewards.Tally{x, other}).WithGuarded(guards.Claims)
	b, err := pool.Divide(1, []rewards.Tally{x, other}, guards, func(k sign.Key) (sign.Key, bool) { return sign.Key(sign.Sum(k[:])), true })
	if err != nil {
		t.Fatal(err)
	}
	v.Guarded, v.PoolTable, v.PoolPayees, v.PoolRoot = guards.Claims, hex.EncodeToString(pool.Marshal()), hex.EncodeToString(b.Marshal()), b.Rewards().Root
	got, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	const file = "testdata/vectors.json"
	if *rewrite {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what comes out; -rewrite writes it anew: %v", file, err)
	}
}
