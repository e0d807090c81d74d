package replica

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

func TestAnnouncement(t *testing.T) {
	t.Parallel()
	d := dissent("forged", "x", "x")
	a := Announce(d)
	again, err := UnmarshalAnnouncement(a.Marshal())
	if err != nil || again.Check(domain) != nil || len(a.Marshal()) > MaxAnnouncement {
		t.Fatal(err, again.Check(domain))
	}
	if got, err := again.Open(d.Marshal()); err != nil || CheckDissent(domain, got) != nil {
		t.Fatal(err)
	}
	other := dissent("forged", "x")
	for name, b := range map[string][]byte{"nothing": nil, "another": other.Marshal(), "cut": d.Marshal()[:100], "more": append(d.Marshal(), 0)} {
		if _, err := a.Open(b); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	lying := Announce(other)
	lying.Receipts = a.Receipts[:2]
	if _, err := lying.Open(other.Marshal()); !errors.Is(err, market.ErrMalformed) {
		t.Errorf("other receipts than are in it: %v", err)
	}
}

// Every rule is broken once; the rule that is named is the one.
func TestAnnouncementRefused(t *testing.T) {
	t.Parallel()
	resign := func(a *Announcement, i int, by string, change func(*verify.ReceiptCore)) {
		r := &a.Receipts[i]
		p := private(by)
		r.Provider = p.Key()
		change(&r.ReceiptCore)
		r.ProviderSig, _ = r.ReceiptCore.Sign(domain, p)
		r.BuyerSig, _ = r.ReceiptCore.Sign(domain, private("buyer"))
	}
	none := func(*verify.ReceiptCore) {}
	for name, c := range map[string]struct {
		change func(*Announcement)
		rule   verify.Rule // empty: malformed
	}{
		"same":         {func(a *Announcement) { *a = Announce(dissent("x", "x")) }, RuleDissent},
		"one":          {func(a *Announcement) { a.Receipts = a.Receipts[:1] }, ""},
		"six":          {func(a *Announcement) { a.Receipts = append(a.Receipts, a.Receipts...) }, ""},
		"too long":     {func(a *Announcement) { a.Size = MaxDissent + 1 }, ""},
		"too short":    {func(a *Announcement) { a.Size = 8 }, ""},
		"order":        {func(a *Announcement) { slices.Reverse(a.Receipts) }, ""},
		"one provider": {func(a *Announcement) { resign(a, 0, "q", none); resign(a, 1, "q", none) }, RuleApart},
		"not final":    {func(a *Announcement) { resign(a, 1, "b", func(c *verify.ReceiptCore) { c.Flags = 0 }) }, RuleEnded},
		"no output":    {func(a *Announcement) { resign(a, 1, "b", func(c *verify.ReceiptCore) { c.Output = sign.Hash{} }) }, RuleOutput},
		"provider's":   {func(a *Announcement) { a.Receipts[1].ProviderSig[0] ^= 1 }, verify.RuleProvider},
		"buyer's":      {func(a *Announcement) { a.Receipts[2].BuyerSig[0] ^= 1 }, verify.RuleBuyer},
	} {
		a := Announce(dissent("forged", "x", "x"))
		c.change(&a)
		err := a.Check(domain)
		rule, broken := errors.AsType[*verify.RuleError](err)
		if c.rule != "" && (!broken || rule.Rule != c.rule) || c.rule == "" && !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v, want rule %q", name, err, c.rule)
		}
	}
	good := Announce(dissent("forged", "x")).Marshal()
	for cut := range good {
		if _, err := UnmarshalAnnouncement(good[:cut]); err == nil {
			t.Fatalf("%d of %d bytes", cut, len(good))
		}
	}
	for i, b := range map[int]byte{0: 2, 1: 1, 2: 1, 3: 1} {
		bad := bytes.Clone(good)
		bad[i] = b
		if _, err := UnmarshalAnnouncement(bad); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
}

func FuzzAnnouncement(f *testing.F) {
	f.Add(Announce(dissent("forged", "x", "x")).Marshal())
	f.Add(Announce(dissent("forged", "x")).Marshal())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := UnmarshalAnnouncement(b)
		if err != nil {
			if !errors.Is(err, market.ErrMalformed) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if !bytes.Equal(a.Marshal(), b) {
			t.Fatal("another form of the same")
		}
		_ = a.Check(domain)
		_, _ = a.Open(b)
	})
}
