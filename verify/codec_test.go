package verify

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

var rewrite = flag.Bool("rewrite", false, "write the test vectors instead of checking them")

// vector is one object in words, in bytes and as it is signed.
type vector struct {
	What     string   `json:"what"`
	Object   any      `json:"object"`
	Bytes    string   `json:"bytes"`
	Preimage string   `json:"preimage,omitempty"` // what the signatures cover
	Hash     string   `json:"hash,omitempty"`
	Seeds    []string `json:"seeds,omitempty"` // Ed25519 seeds of the signers
}

func vectorFile(t *testing.T, name string, value any) {
	t.Helper()
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, '\n')
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("layouts differ from %s; other implementations and the program would not understand. If that is meant: go test -rewrite", path)
	}
}

func seedOf(p sign.Private) string {
	s := p.Seed()
	return hex.EncodeToString(s[:])
}

func TestVectors(t *testing.T) {
	t.Parallel()
	set := keySet(t, 2, buyer, provider, other)
	core := leaseCore(t)
	leaseBytes := core.Marshal()

	free, err := SignVoucher(domain, voucher(core), keySet(t, 1, buyer), buyer)
	if err != nil {
		t.Fatal(err)
	}
	escrowDomain := domain
	escrowDomain.Program = sign.Key(sign.Sum([]byte("program")))
	guarded := voucher(core)
	guarded.Escrow, guarded.Flags = sign.Key(sign.Sum([]byte("escrow"))), VoucherFinal
	threshold, err := SignVoucher(escrowDomain, guarded, set, buyer, other)
	if err != nil {
		t.Fatal(err)
	}
	vectorFile(t, "vouchers.json", []vector{
		signedVector("voucher of one key, free network", free, free.Marshal(), domain, sign.TagVoucher, VoucherSize, buyer),
		signedVector("final voucher of two of three keys, escrow", threshold, threshold.Marshal(), escrowDomain, sign.TagVoucher, VoucherSize, buyer, other),
	})

	rs := chainOf(t, core, 1005, []uint64{25, 25, 7, 0}, true)
	var vs []vector
	for _, r := range rs {
		v := signedVector(fmt.Sprintf("receipt %d", r.Seq), r, r.Marshal(), domain, sign.TagReceipt, ReceiptCoreSize, provider, buyer)
		v.Hash = r.Hash().String()
		vs = append(vs, v)
	}
	vectorFile(t, "receipts.json", struct {
		Domain    sign.Domain `json:"domain"`
		LeaseCore string      `json:"lease_core"`
		Lease     string      `json:"lease"`
		Chain     []vector    `json:"chain"`
	}{domain, hex.EncodeToString(leaseBytes[:]), core.ID().String(), vs})

	grant := grantsOf(t)
	vectorFile(t, "grants.json", []vector{
		signedVector("supervision grant of two of three guardians", grant, grant.Marshal(), domain, sign.TagSupervision, SupervisionGrantSize, buyer, other),
	})

	a, b, unitsA, unitsB := conflictOf(t)
	c, err := NewConflict(domain, a, b, unitsA, unitsB)
	if err != nil {
		t.Fatal(err)
	}
	vectorFile(t, "conflicts.json", []vector{{What: "unit 02… in two leases, slots 1020 to 1030", Object: c, Bytes: hex.EncodeToString(c.Marshal())}})
}

func signedVector(what string, object any, wire []byte, d sign.Domain, tag sign.Tag, payload int, by ...sign.Private) vector {
	v := vector{What: what, Object: object, Bytes: hex.EncodeToString(wire), Preimage: hex.EncodeToString(d.Preimage(tag, wire[:payload]))}
	for _, s := range by {
		v.Seeds = append(v.Seeds, seedOf(s))
	}
	return v
}

func grantsOf(tb interface{ Fatal(...any) }) SignedSupervisionGrant {
	set := keySet(tb, 2, buyer, provider, other)
	grant := SignedSupervisionGrant{
		SupervisionGrant: SupervisionGrant{
			Version: GrantVersion, Job: sign.Sum([]byte("job")), Epoch: 3, Supervisor: other.Key(), Guardians: set.Hash(), Slot: 7_000,
		},
		Signatures: Signatures{Set: set},
	}
	var err error
	for _, by := range []sign.Private{buyer, other} {
		if grant, err = grant.With(domain, by); err != nil {
			tb.Fatal(err)
		}
	}
	return grant
}

// Offsets of PROTOCOL.md, checked against the encoders: a field set to ones shows exactly there.
func TestOffsets(t *testing.T) {
	t.Parallel()
	ones := sign.Hash(bytes.Repeat([]byte{0xff}, 32))
	check := func(name string, b []byte, at, size int) {
		t.Helper()
		for i, v := range b {
			if in := i >= at && i < at+size; in != (v == 0xff) {
				t.Errorf("%s: byte %d is %#x, the field is at %d, %d bytes", name, i, v, at, size)
				return
			}
		}
	}
	const all = ^uint64(0)
	for _, f := range []struct {
		name     string
		v        Voucher
		at, size int
	}{
		{"lease", Voucher{Lease: market.LeaseID(ones)}, 8, 32}, {"escrow", Voucher{Escrow: sign.Key(ones)}, 40, 32}, {"seq", Voucher{Seq: all}, 72, 8},
		{"cumulative", Voucher{Cumulative: market.Amount(all)}, 80, 8}, {"horizon", Voucher{Horizon: market.Slot(all)}, 88, 8},
		{"supervision", Voucher{Supervision: all}, 96, 8}, {"version", Voucher{Version: 255}, 0, 1}, {"flags", Voucher{Flags: 255}, 1, 1},
	} {
		b := f.v.Marshal()
		check("voucher "+f.name, b[:], f.at, f.size)
	}
	for _, f := range []struct {
		name     string
		r        ReceiptCore
		at, size int
	}{
		{"version", ReceiptCore{Version: 255}, 0, 1}, {"flags", ReceiptCore{Flags: 255}, 1, 1}, {"units", ReceiptCore{Units: 0xffff}, 2, 2},
		{"rank epoch", ReceiptCore{RankEpoch: 0xffffffff}, 4, 4}, {"lease", ReceiptCore{Lease: market.LeaseID(ones)}, 8, 32},
		{"seq", ReceiptCore{Seq: all}, 40, 8}, {"prev", ReceiptCore{Prev: ones}, 48, 32}, {"provider", ReceiptCore{Provider: sign.Key(ones)}, 80, 32},
		{"buyer", ReceiptCore{Buyer: sign.Key(ones)}, 112, 32}, {"units root", ReceiptCore{UnitsRoot: ones}, 144, 32},
		{"supervision", ReceiptCore{Supervision: all}, 176, 8}, {"from", ReceiptCore{From: market.Slot(all)}, 184, 8},
		{"to", ReceiptCore{To: market.Slot(all)}, 192, 8}, {"cpu", ReceiptCore{CPUMillis: all}, 200, 8},
		{"amount", ReceiptCore{Amount: market.Amount(all)}, 208, 8}, {"cumulative", ReceiptCore{Cumulative: market.Amount(all)}, 216, 8},
		{"output", ReceiptCore{Output: ones}, 224, 32},
	} {
		b := f.r.Marshal()
		check("receipt "+f.name, b[:], f.at, f.size)
	}
	for _, f := range []struct {
		name     string
		g        SupervisionGrant
		at, size int
	}{
		{"job", SupervisionGrant{Job: ones}, 8, 32}, {"epoch", SupervisionGrant{Epoch: all}, 40, 8},
		{"supervisor", SupervisionGrant{Supervisor: sign.Key(ones)}, 48, 32}, {"guardians", SupervisionGrant{Guardians: ones}, 80, 32},
		{"slot", SupervisionGrant{Slot: market.Slot(all)}, 112, 8},
	} {
		b := f.g.Marshal()
		check("supervision grant "+f.name, b[:], f.at, f.size)
	}
}

// roundTrip: what is read is written again as it was, and what is refused is refused by name.
func roundTrip[T any](t *testing.T, b []byte, read func([]byte) (T, error), write func(T) []byte) {
	t.Helper()
	v, err := read(b)
	if err != nil {
		if !errors.Is(err, market.ErrMalformed) {
			t.Fatalf("untyped error: %v", err)
		}
		return
	}
	if out := write(v); !bytes.Equal(out, b) {
		t.Fatalf("read\n%x\nwrote\n%x", b, out)
	}
}

func FuzzSignedVoucher(f *testing.F) {
	core := leaseCore(f)
	v, err := SignVoucher(domain, voucher(core), keySet(f, 2, buyer, provider, other), buyer, other)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(v.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		roundTrip(t, b, UnmarshalSignedVoucher, SignedVoucher.Marshal)
		roundTrip(t, b[:min(len(b), VoucherSize)], UnmarshalVoucher, func(v Voucher) []byte { out := v.Marshal(); return out[:] })
		if v, err := UnmarshalSignedVoucher(b); err == nil {
			_ = v.Check(domain, core) // must not panic
		}
	})
}

func FuzzReceipt(f *testing.F) {
	core := leaseCore(f)
	for _, r := range chainOf(f, core, 1005, []uint64{25, 3}, true) {
		f.Add(r.Marshal())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		roundTrip(t, b, UnmarshalReceipt, Receipt.Marshal)
		if r, err := UnmarshalReceipt(b); err == nil {
			_ = CheckChain(domain, core, []Receipt{r}) // must not panic
		}
	})
}

func FuzzGrants(f *testing.F) {
	f.Add(grantsOf(f).Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		roundTrip(t, b, UnmarshalSignedSupervisionGrant, SignedSupervisionGrant.Marshal)
	})
}

func FuzzConflict(f *testing.F) {
	a, b, unitsA, unitsB := conflictOf(f)
	c, err := NewConflict(domain, a, b, unitsA, unitsB)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(c.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		roundTrip(t, b, UnmarshalConflict, Conflict.Marshal)
		if c, err := UnmarshalConflict(b); err == nil {
			_ = CheckConflict(domain, c) // must not panic
		}
	})
}

// receiptRate returns a function that reports how many receipts a second of processor time was enough for since it was
// made: what one core does in a second, also on a machine that is busy with something else.
func receiptRate(b *testing.B) func(receipts float64) {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func(receipts float64) { b.ReportMetric(receipts/(used()-before).Seconds(), "receipts/s/core") }
}

func BenchmarkReceiptBuildAndCosign(b *testing.B) {
	core := leaseCore(b)
	chain := NewChain(core)
	at := market.Slot(1005)
	b.ReportAllocs()
	rate := receiptRate(b)
	for b.Loop() {
		if at+25 > 300_000 {
			chain, at = NewChain(core), 1005
		}
		r, err := chain.Next(at, at+25, func(*ReceiptCore) {})
		if err != nil {
			b.Fatal(err)
		}
		signed(b, r)
		if chain, err = chain.Follow(r); err != nil {
			b.Fatal(err)
		}
		at = r.To
	}
	rate(float64(b.N))
}

func BenchmarkCheckChain(b *testing.B) {
	core := leaseCore(b)
	slots := make([]uint64, 256)
	for i := range slots {
		slots[i] = 25
	}
	rs := chainOf(b, core, 1005, slots, true)
	b.ReportAllocs()
	rate := receiptRate(b)
	for b.Loop() {
		if err := CheckChain(domain, core, rs); err != nil {
			b.Fatal(err)
		}
	}
	rate(float64(b.N) * float64(len(rs)))
}

// BenchmarkFollowOnly is CheckChain without its signatures: what the rest of the rules costs.
func BenchmarkFollowOnly(b *testing.B) {
	core := leaseCore(b)
	rs := chainOf(b, core, 1005, []uint64{25, 25, 25, 25, 25, 25, 25, 25}, true)
	b.ReportAllocs()
	rate := receiptRate(b)
	for b.Loop() {
		chain := NewChain(core)
		for i := range rs {
			var err error
			if chain, err = chain.Follow(rs[i].ReceiptCore); err != nil {
				b.Fatal(err)
			}
		}
	}
	rate(float64(b.N) * float64(len(rs)))
}
