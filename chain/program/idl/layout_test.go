package main

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"testing"
	"unicode"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

// reads walks over a value of a type and returns the place after it, and the value if it is a number. It reads as
// Codama's clients do.
func reads(t node, b []byte, at int) (value, after int, err error) {
	need := func(n int) error {
		if at+n > len(b) {
			return fmt.Errorf("%v at %d: %d bytes of %d", t["kind"], at, n, len(b))
		}
		return nil
	}
	switch t["kind"] {
	case "numberTypeNode":
		n := map[any]int{"u8": 1, "u16": 2, "u32": 4, "i32": 4, "u64": 8}[t["format"]]
		if err := need(n); err != nil {
			return 0, 0, err
		}
		full := make([]byte, 8)
		copy(full, b[at:at+n])
		return int(binary.LittleEndian.Uint64(full)), at + n, nil
	case "publicKeyTypeNode":
		return 0, at + sign.KeySize, need(sign.KeySize)
	case "booleanTypeNode":
		return reads(t["size"].(node), b, at)
	case "fixedSizeTypeNode":
		return 0, at + t["size"].(int), need(t["size"].(int))
	case "bytesTypeNode": // to the end
		return 0, len(b), nil
	case "structTypeNode":
		for _, f := range t["fields"].([]node) {
			if _, at, err = reads(f["type"].(node), b, at); err != nil {
				return 0, 0, fmt.Errorf("%v: %w", f["name"], err)
			}
		}
		return 0, at, nil
	case "definedTypeLinkNode":
		for _, x := range types {
			if x.name == t["name"] {
				return reads(x.of, b, at)
			}
		}
		return 0, 0, fmt.Errorf("no type %v", t["name"])
	case "preOffsetTypeNode":
		to := t["offset"].(int)
		if t["strategy"] == "relative" {
			to += at
		}
		if to < 0 || to > len(b) {
			return 0, 0, fmt.Errorf("offset %d of %d bytes", to, len(b))
		}
		return reads(t["type"].(node), b, to)
	case "postOffsetTypeNode": // back to where it began
		value, _, err := reads(t["type"].(node), b, at)
		return value, at + t["offset"].(int), err
	case "arrayTypeNode":
		return elements(t["item"].(node), t["count"].(node), b, at)
	}
	return 0, 0, fmt.Errorf("a node of kind %v", t["kind"])
}

func elements(item, count node, b []byte, at int) (_, after int, err error) {
	n := 0
	switch count["kind"] {
	case "fixedCountNode":
		n = count["value"].(int)
	case "prefixedCountNode":
		if n, at, err = reads(count["prefix"].(node), b, at); err != nil {
			return 0, 0, err
		}
	case "remainderCountNode":
		for err == nil && at < len(b) {
			_, at, err = reads(item, b, at)
		}
		return 0, at, err
	}
	for range n {
		if _, at, err = reads(item, b, at); err != nil {
			return 0, 0, err
		}
	}
	return 0, at, nil
}

var (
	anyKeys  = market.KeySet{Threshold: 2, Keys: []sign.Key{{1}, {2}, {3}}}
	standby  = account.Standby{Provider: sign.Key{4}, Payout: sign.Key{5}, MaxRate: 6, Budget: 7}
	anyProof = tranche.Proof{{Sum: 1}, {Sum: 2}, {Sum: 3}}
	mints    = account.Params{Network: "test", Mints: []account.MintTerms{{FeeBps: 1}, {FeeBps: 2}}}
)

// Each call's data is as long as its layout, with lists of any length too.
func TestLayoutsOfCalls(t *testing.T) {
	t.Parallel()
	more := map[string][]program.Call{
		"initNetwork": {program.InitNetwork{Params: mints}},
		"openEscrow":  {program.OpenEscrow{Keys: anyKeys, Standbys: []account.Standby{standby, standby}}},
		"addStandbyTranche": {program.AddStandbyTranche{Signers: anyKeys.Keys, Leaves: make([]program.StandbyLeaf, 3)},
			program.AddStandbyTranche{Signers: anyKeys.Keys}},
		"claim":        {program.Claim{Proof: anyProof}, program.Claim{Payee: sign.Key{1}}},
		"retireFinish": {program.RetireFinish{Proof: anyProof}},
		"retireFinal":  {program.RetireFinal{Proof: anyProof[:1]}},
		"retireBegin":  {program.RetireBegin{Signers: anyKeys.Keys}},
	}
	for _, c := range calls {
		for i, sample := range append([]program.Call{c.sample}, more[c.name]...) {
			b := sample.Instruction(at).Data
			_, after, err := reads(structure(append([]field{f("discriminator", u8)}, c.data...)...), b, 0)
			if err != nil || after != len(b) {
				t.Errorf("%s, sample %d: %d of %d bytes, %v", c.name, i, after, len(b), err)
			}
		}
		delete(more, c.name)
	}
	if len(more) > 0 {
		t.Errorf("no calls %v", more)
	}
}

// Each account is as long as its layout, with lists of any length too, and its lists are counted where the layout says.
func TestLayoutsOfAccounts(t *testing.T) {
	t.Parallel()
	type marshals = interface{ Marshal() []byte }
	more := map[string][]marshals{
		"network": {account.NewNetwork(mints)},
		"escrow": {account.Escrow{Keys: anyKeys}, account.Escrow{Standbys: []account.Standby{standby}},
			account.Escrow{Keys: anyKeys, Standbys: []account.Standby{standby, standby, standby}}},
		"tranche": {account.Tranche{Leaves: make([]account.LeafState, 5)}},
	}
	for _, a := range accounts {
		for i, sample := range append([]marshals{a.sample}, more[a.name]...) {
			b := sample.Marshal()
			_, after, err := reads(structure(append([]field{f("kind", u8), f("version", u8)}, a.fields...)...), b, 0)
			if err != nil || after != len(b) {
				t.Errorf("%s, sample %d: %d of %d bytes, %v", a.name, i, after, len(b), err)
			}
		}
		delete(more, a.name)
	}
	if len(more) > 0 {
		t.Errorf("no accounts %v", more)
	}
}

// A client tells calls, and accounts, apart by their first bytes: no sample is taken for another's.
func TestDiscriminators(t *testing.T) {
	t.Parallel()
	s, err := read("..")
	if err != nil {
		t.Fatal(err)
	}
	matches := func(n node, b []byte) bool {
		for _, d := range n["discriminators"].([]node) {
			want := d["constant"].(node)["value"].(node)["number"].(int)
			if at := d["offset"].(int); at >= len(b) || int(b[at]) != want {
				return false
			}
		}
		return true
	}
	for _, a := range accounts {
		for _, b := range accounts {
			if got := matches(s.account(a), b.sample.Marshal()); got != (a.name == b.name) {
				t.Errorf("account %s is taken for %s: %v", b.name, a.name, got)
			}
		}
	}
	for _, a := range calls {
		n, err := s.call(a)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range calls {
			// any false value may be opened, but not two answers
			if got := matches(n, b.sample.Instruction(at).Data); got != (a.name == b.name) && a.name != "slashWrongValue" {
				t.Errorf("call %s is taken for %s: %v", b.name, a.name, got)
			}
		}
	}
}

// Names are those of generated code: each once, in camel case; and links lead somewhere.
func TestNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	name := func(kind, s string) {
		if s == "" || !unicode.IsLower(rune(s[0])) || seen[kind+s] {
			t.Errorf("%s %q: not a name, or twice", kind, s)
		}
		seen[kind+s] = true
	}
	for _, p := range pdas {
		name("pda ", p.name)
	}
	for _, x := range types {
		name("type ", x.name)
	}
	for _, a := range accounts {
		if name("account ", a.name); !seen["pda "+a.pda] {
			t.Errorf("account %s is at an unknown address %q", a.name, a.pda)
		}
	}
	for _, c := range calls {
		name("call ", c.name)
		for _, f := range c.data {
			name("argument of "+c.name+" ", f.name)
		}
	}
}

// Addresses are made of the words and inputs that the interface says, in this order.
func TestAddresses(t *testing.T) {
	t.Parallel()
	k, h, n := sign.Key{7}, sign.Hash{8}, uint64(1<<40+5)
	bytesOf := func(f field) []byte {
		switch {
		case reflect.DeepEqual(f.of, key):
			return k[:]
		case reflect.DeepEqual(f.of, hash):
			return h[:]
		}
		b := binary.LittleEndian.AppendUint64(nil, n)
		return b[:map[any]int{"u8": 1, "u16": 2, "u64": 8}[f.of["format"]]]
	}
	for name, want := range map[string]sign.Key{
		"pool": account.PoolAddress(at, k, k), "escrow": account.EscrowAddress(at, k, k, h, n),
		"vault": account.VaultAddress(at, k), "tranche": account.TrancheAddress(at, k, uint16(n&0xffff)),
		"provider": account.ProviderAddress(at, k, k), "anchor": account.AnchorAddress(at, k, h),
		"emission": account.EmissionAddress(at, k), "ballot": account.BallotAddress(at, k, k, n),
		"vote": account.VoteAddress(at, h, k), "payout": account.PayoutAddress(at, k, uint8(n&0xff), n),
	} {
		for _, p := range pdas {
			if p.name != name {
				continue
			}
			seeds := [][]byte{[]byte(p.word)}
			for _, f := range p.seeds {
				seeds = append(seeds, bytesOf(f))
			}
			if got, _, err := solana.ProgramAddress(at, seeds...); err != nil || got != want {
				t.Errorf("%s: %s, want %s, %v", name, got, want, err)
			}
			want = sign.Key{}
		}
		if want != (sign.Key{}) {
			t.Errorf("no address %s", name)
		}
	}
}
