package audit_test

import (
	"bytes"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// by is a case on a network whose beacons are by somebody: where peers make them, n of whom the roster draws do.
func by(t testing.TB, b market.Beacon, n int) (audittest.Case, *audit.Beacons) {
	t.Helper()
	c, g, err := audittest.NewBy(b, n)
	if err != nil {
		t.Fatal(err)
	}
	bs, err := audit.NewBeacons(g)
	if err != nil {
		t.Fatal(err)
	}
	return c, bs
}

func made(t testing.TB, c audittest.Case) audit.Record {
	t.Helper()
	r, err := c.Make()
	if err != nil {
		t.Fatal(err)
	}
	b := r.Marshal()
	read, err := audit.UnmarshalRecord(b)
	if err != nil || !bytes.Equal(read.Marshal(), b) {
		t.Fatalf("a record is not read as it was written: %v", err)
	}
	if err := read.Check(audittest.Domain()); err != nil {
		t.Fatal(err)
	}
	return read
}

// A record on a network of drand's beacons is checked with nothing but the genesis, to its dataset.
func TestDrandRecord(t *testing.T) {
	t.Parallel()
	c, bs := by(t, market.ByDrand, 0)
	r := made(t, c)
	if err := r.CheckBeacon(bs); err != nil {
		t.Fatal(err)
	}
	if err := r.CheckMembers(c.Roster); err != nil {
		t.Error(err)
	}
	for name, x := range map[string]struct {
		change func(r *audit.Record)
		want   audit.Rule
	}{
		"no proof":             {func(r *audit.Record) { r.Proof = nil }, audit.RuleBeacon},
		"half of it":           {func(r *audit.Record) { r.Proof = r.Proof[:48] }, audit.RuleBeacon},
		"another signature":    {func(r *audit.Record) { r.Proof = bytes.Clone(r.Proof); r.Proof[40] ^= 1 }, audit.RuleBeacon},
		"infinity":             {func(r *audit.Record) { r.Proof = append([]byte{0xc0}, make([]byte, 95)...) }, audit.RuleBeacon},
		"the era's signature":  {func(r *audit.Record) { r.Proof = bytes.Clone(r.Proof); copy(r.Proof[48:], r.Proof[:48]) }, audit.RuleBeacon},
		"another round":        {func(r *audit.Record) { r.Beacon.Round++ }, audit.RuleBeacon},
		"another value":        {func(r *audit.Record) { r.Beacon.Value[0]++ }, audit.RuleBeacon},
		"a slot hash":          {func(r *audit.Record) { r.Beacon.Source = audit.SlotHash }, audit.RuleBeacon},
		"no source":            {func(r *audit.Record) { r.Beacon.Source = 0 }, audit.RuleBeacon},
		"a dataset of another": {func(r *audit.Record) { r.Answer.DatasetSeed[0]++ }, audit.RuleSeed},
		"other windows":        {func(r *audit.Record) { r.WindowSlots++ }, audit.RuleWindow},
	} {
		bad := r
		x.change(&bad)
		wantRule(t, name, bad.CheckBeacon(bs), x.want)
	}
}

func TestRevealedRecord(t *testing.T) {
	t.Parallel()
	c, bs := by(t, market.CommitReveal, 9)
	r := made(t, c)
	if err := r.CheckBeacon(bs); err != nil {
		t.Fatal(err)
	}
	if err := r.CheckMembers(c.Roster); err != nil {
		t.Error(err)
	}
	few, _ := by(t, market.CommitReveal, 5) // of nine seven must, or six where one more is known
	wantRule(t, "too few made it", made(t, few).CheckMembers(few.Roster), audit.RuleBeacon)
	enough, _ := by(t, market.CommitReveal, 7)
	if err := made(t, enough).CheckMembers(enough.Roster); err != nil {
		t.Error(err)
	}
	wantRule(t, "others are drawn", r.CheckMembers(audit.Roster{{Key: audittest.Key("else").Key(), Weight: 1}}), audit.RuleBeacon)
	other := c.Roster[:8:8]
	wantRule(t, "one is not of the set", r.CheckMembers(append(other, audit.Member{Key: sign.Key{5}, Weight: 1})), audit.RuleBeacon)
	for name, x := range map[string]struct {
		change func(r *audit.Record)
		want   audit.Rule
	}{
		"no proof":     {func(r *audit.Record) { r.Proof = nil }, audit.RuleBeacon},
		"cut off":      {func(r *audit.Record) { r.Proof = r.Proof[:100] }, audit.RuleBeacon},
		"nobody":       {func(r *audit.Record) { r.Proof = []byte{0} }, audit.RuleBeacon},
		"one left out": {func(r *audit.Record) { r.Proof = append([]byte{8}, r.Proof[1+audit.RevealedSize:]...) }, audit.RuleBeacon},
		"one twice": {func(r *audit.Record) {
			p := bytes.Clone(r.Proof)
			copy(p[1:], p[1+audit.RevealedSize:][:audit.RevealedSize])
			r.Proof = p
		}, audit.RuleBeacon},
		"a nonce":         {func(r *audit.Record) { p := bytes.Clone(r.Proof); p[1+32]++; r.Proof = p }, audit.RuleBeacon},
		"a signature":     {func(r *audit.Record) { p := bytes.Clone(r.Proof); p[1+48]++; r.Proof = p }, audit.RuleBeacon},
		"another window":  {func(r *audit.Record) { r.Answer.Window++ }, audit.RuleBeacon},
		"another's":       {func(r *audit.Record) { r.Answer.Provider = sign.Key{1} }, audit.RuleBeacon},
		"another dataset": {func(r *audit.Record) { r.Answer.DatasetSeed[0]++ }, audit.RuleSeed},
	} {
		bad := r
		x.change(&bad)
		wantRule(t, name, bad.CheckBeacon(bs), x.want)
	}
	bad := r
	bad.Beacon.Round++
	wantRule(t, "of another window", bad.Check(audittest.Domain()), audit.RuleWindow)

	// A provider that is drawn by its own set does not make its own beacon.
	self := c
	self.Members[c.Provider.Key()] = c.Provider
	rs, err := c.Reveals(9)
	if err != nil {
		t.Fatal(err)
	}
	rs[0].Member = c.Provider.Key()
	is, proof := audit.FromReveals(c.Provider.Key(), c.Window, rs)
	_, err = bs.Check(c.Provider.Key(), c.Window, is, proof)
	wantRule(t, "its own", err, audit.RuleBeacon)
}

// On a network of slot hashes a record needs no proof, and may have none.
func TestSlotHashNeedsNoProof(t *testing.T) {
	t.Parallel()
	c := audittest.New(9)
	bs, err := audit.NewBeacons(c.Genesis(""))
	if err != nil {
		t.Fatal(err)
	}
	r := made(t, c)
	if err := r.CheckBeacon(bs); err != nil {
		t.Fatal(err)
	}
	r.Proof = []byte{1}
	wantRule(t, "a proof", r.CheckBeacon(bs), audit.RuleBeacon)
	r.Proof, r.Beacon.Round = nil, r.Beacon.Round+c.Slots
	wantRule(t, "a block of the next window", r.CheckBeacon(bs), audit.RuleWindow)
}

func FuzzBeacon(f *testing.F) {
	dc, ds := by(f, market.ByDrand, 0)
	rc, rs := by(f, market.CommitReveal, 9)
	for _, r := range []audit.Record{made(f, dc), made(f, rc)} {
		f.Add(uint8(r.Beacon.Source), r.Beacon.Round, r.Beacon.Value[:], r.Proof)
	}
	f.Fuzz(func(t *testing.T, source uint8, round uint64, value, proof []byte) {
		if len(value) != sign.HashSize {
			return
		}
		b := audit.Beacon{Source: audit.Source(source), Round: round, Value: sign.Hash(value)}
		for _, bs := range []*audit.Beacons{ds, rs} {
			if _, err := bs.Check(rc.Provider.Key(), rc.Window, b, proof); err == nil && b.Source != bs.Source() {
				t.Fatal("a beacon of another source")
			}
		}
		for _, m := range audit.RevealersIn(proof) {
			if m == rc.Provider.Key() && b.Source == audit.ByReveal {
				if _, err := rs.Check(rc.Provider.Key(), rc.Window, b, proof); err == nil {
					t.Fatal("the provider's own beacon")
				}
			}
		}
	})
}
