package reputation_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	book "github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/notice"
	"github.com/starling-network/starling/verify/reputation"
)

func key(n int) sign.Key {
	k := sign.Key{1}
	binary.BigEndian.PutUint32(k[1:], uint32(n))
	return k
}

var self = key(0)

const now = market.Slot(10_000_000)

// token is what amounts are measured in here.
const token = 1_000_000_000

func config(s store.Store) book.Config {
	return book.Config{Genesis: market.Genesis{SlotMillis: 400, Decimals: 9, IntervalSlots: 150}, Self: self, Store: s, Log: slog.New(slog.DiscardHandler),
		Slot: func() (market.Slot, error) { return now, nil }}
}

func open(t *testing.T, cfg book.Config) *book.Book {
	t.Helper()
	b, err := book.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func leaseOf(n int, provider, buyer sign.Key) market.Lease {
	nonce := market.Nonce{}
	binary.BigEndian.PutUint32(nonce[:], uint32(n))
	return market.Lease{Core: market.LeaseCore{Provider: provider, Buyer: buyer, Nonce: nonce, Cap: token, Start: now - 1000, End: now}}
}

func receiptOf(l market.Lease, paid market.Amount) verify.Receipt {
	return verify.Receipt{ReceiptCore: verify.ReceiptCore{Lease: l.Core.ID(), Provider: l.Core.Provider, Buyer: l.Core.Buyer, Cumulative: paid, From: now - 100, To: now - 10}}
}

// public is one lease between others, as its buyer shows it.
func public(n int, provider, buyer sign.Key, paid market.Amount) chain.Testimony {
	r := receiptOf(leaseOf(n, provider, buyer), paid)
	hashes := []sign.Hash{r.SignedHash()}
	return chain.Testimony{Receipt: r, In: chain.Include(chain.Anchor{Root: chain.RootOf(hashes), Count: 1}, hashes, 0, "tx", now)}
}

func TestOwnLeasesCount(t *testing.T) {
	t.Parallel()
	b := open(t, config(store.NewMemory()))
	bought, sold := leaseOf(1, key(1), self), leaseOf(2, self, key(2))
	b.File(bought, receiptOf(bought, token))
	b.File(sold, receiptOf(sold, token))
	byJobKey := leaseOf(3, key(3), key(99)) // the job that bought it has a key of its own
	b.File(byJobKey, receiptOf(byJobKey, token))
	for i, role := range []reputation.Role{reputation.Provider, reputation.Buyer, reputation.Provider} {
		if s := b.Scores(role, key(i+1))[0]; s.Good == 0 || s.Newcomer() {
			t.Errorf("%s %d: %+v", role, i+1, s)
		}
	}
	if s := b.Scores(reputation.Buyer, key(1))[0]; s.Good != 0 {
		t.Errorf("a provider is no buyer: %+v", s)
	}
	b.Failed(leaseOf(4, key(1), self).Core, token)
	b.Failed(leaseOf(5, self, key(2)).Core, token)
	if s := b.Scores(reputation.Provider, key(1))[0]; !s.Shunned() {
		t.Errorf("after a failure: %+v", s)
	}
	if s := b.Scores(reputation.Buyer, key(2))[0]; !s.Shunned() {
		t.Errorf("after a failure: %+v", s)
	}
}

// What others signed counts as far as the reader's own leases lead there; later receipts of a lease replace the earlier.
func TestWhatIsPublicCounts(t *testing.T) {
	t.Parallel()
	b := open(t, config(store.NewMemory()))
	for i, p := range []int{1, 2, 3} { // self bought of three, and so did key(10), which also bought of key(5)
		l := leaseOf(i, key(p), self)
		b.File(l, receiptOf(l, token))
		b.Learn(public(10+i, key(p), key(10), token))
	}
	b.Learn(public(20, key(5), key(10), token/10))
	before := b.Scores(reputation.Provider, key(5))[0]
	if before.Good == 0 {
		t.Fatalf("%+v", before)
	}
	b.Learn(public(20, key(5), key(10), token))
	l := leaseOf(40, key(1), self) // a view is used for a while when only others have news
	b.File(l, receiptOf(l, token))
	if after := b.Scores(reputation.Provider, key(5))[0]; after.Good <= before.Good {
		t.Errorf("%+v after %+v", after, before)
	}
	b.Learn(public(50, key(6), key(60), token)) // whom nobody knows
	if s := b.Scores(reputation.Provider, key(6))[0]; s.Good != 0 {
		t.Errorf("%+v", s)
	}
	// Nobody is told of its own leases by others, and what nobody anchored says nothing.
	if b.Learn(public(51, key(7), self, token)) {
		t.Error("a lease of this peer's own was taken in")
	}
	l = leaseOf(52, key(8), key(10))
	b.Heard(notice.Notice{Leases: []notice.Leased{{Lease: l}}, Receipts: []verify.Receipt{receiptOf(l, token)}})
	for _, k := range []int{7, 8} {
		if s := b.Scores(reputation.Provider, key(k))[0]; s.Good != 0 {
			t.Errorf("%d: %+v", k, s)
		}
	}
	told, more := b.Recent(key(5), 1)
	if want := public(20, key(5), key(10), token); more != 0 || len(told) != 1 || told[0].Receipt != want.Receipt.SignedHash() || told[0].Tx != "tx" || told[0].Rater != key(10) {
		t.Errorf("%+v, %d more", told, more)
	}
}

func TestProofsCount(t *testing.T) {
	t.Parallel()
	b := open(t, config(store.NewMemory()))
	c := verify.Conflict{A: receiptOf(leaseOf(1, key(1), key(2)), 5), B: receiptOf(leaseOf(2, key(1), key(3)), 5)}
	b.SoldTwice(proof.DoubleSale{Conflict: c})
	first := b.Scores(reputation.Provider, key(1))[0]
	if !first.Shunned() {
		t.Errorf("%+v", first)
	}
	c.A.Seq, c.A.From = 7, now-120 // another proof of the same
	b.SoldTwice(proof.DoubleSale{Conflict: c})
	if s := b.Scores(reputation.Provider, key(1))[0]; s != first {
		t.Errorf("%+v, by one proof %+v", s, first)
	}
	b.Record(reputation.Fact{ID: sign.Hash{1}, Kind: reputation.AuditPassed, Subject: key(4), At: now})
	if s := b.Scores(reputation.Provider, key(4))[0]; s.Good == 0 || !s.Newcomer() {
		t.Errorf("%+v", s)
	}
	b.Record(reputation.Fact{ID: sign.Hash{2}, Kind: reputation.Failed, Subject: key(5), Rater: self, At: now}) // that is no record
	if s := b.Scores(reputation.Provider, key(5))[0]; s.Bad != 0 {
		t.Errorf("%+v", s)
	}
}

func TestFactsOutliveTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		b := open(t, config(s))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		l := leaseOf(1, key(1), self)
		b.File(l, receiptOf(l, token))
		b.Failed(leaseOf(2, key(2), self).Core, token)
		time.Sleep(time.Minute)
		b.SoldTwice(proof.DoubleSale{Conflict: verify.Conflict{
			A: receiptOf(leaseOf(3, key(3), key(2)), 5), B: receiptOf(leaseOf(4, key(3), key(3)), 5),
		}})
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		again := open(t, config(s))
		for i := 1; i <= 3; i++ {
			was, is := b.Scores(reputation.Provider, key(i))[0], again.Scores(reputation.Provider, key(i))[0]
			if was != is || was.Good+was.Bad == 0 {
				t.Errorf("%+v after %+v", is, was)
			}
		}
	})
}

// A flood of leases between strangers drives out neither one's own nor those of peers that one's own lead to.
func TestAFloodDrivesOutNothingThatCounts(t *testing.T) {
	t.Parallel()
	b := open(t, config(store.NewMemory()))
	for i, p := range []int{1, 2, 3} {
		l := leaseOf(i, key(p), self)
		b.File(l, receiptOf(l, token))
		b.Learn(public(10+i, key(p), key(10), token))
	}
	b.Learn(public(20, key(5), key(10), token))
	want := b.Scores(reputation.Provider, key(1), key(5))
	for i := range 40_000 {
		b.Learn(public(1000+i, key(1000+2*i), key(1001+2*i), 1000*token))
	}
	l := leaseOf(99, self, key(98))
	b.File(l, receiptOf(l, 1)) // so that it is computed anew
	got := b.Scores(reputation.Provider, key(1), key(5))
	for i := range want {
		if got[i] != want[i] || want[i].Good == 0 {
			t.Errorf("%+v before the flood %+v", got[i], want[i])
		}
	}
}

func TestStakesAreAskedFor(t *testing.T) {
	t.Parallel()
	have := map[sign.Key]market.Amount{key(1): 1000 * token, key(2): 1000 * token, key(3): 0}
	for name, most := range map[string]int{"of all": 3, "of one at a time": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg := config(store.NewMemory())
				asked, calls := map[sign.Key]int{}, 0
				cfg.Stakes = func(_ context.Context, of []sign.Key) (map[sign.Key]market.Amount, error) {
					if calls++; calls == 1 {
						return nil, errors.New("the chain is away")
					}
					out := map[sign.Key]market.Amount{}
					for _, k := range of[:min(most, len(of))] {
						asked[k]++
						out[k] = have[k]
					}
					return out, nil
				}
				b := open(t, cfg)
				for i, p := range []int{1, 2, 3} {
					b.Learn(public(i, key(p), key(10), token))
				}
				if s := b.Scores(reputation.Provider, key(3))[0]; s.Good != 0 {
					t.Errorf("without a beginning: %+v", s)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- b.Run(ctx) }()
				time.Sleep(11 * time.Minute)
				synctest.Wait()
				if s := b.Scores(reputation.Provider, key(3))[0]; s.Good == 0 {
					t.Errorf("with stakes: %+v", s)
				}
				cancel()
				<-done
				for k := range have {
					if n := asked[k]; n < 1 || n > 2 {
						t.Errorf("%s was asked for %d times in eleven minutes", k.Short(), n)
					}
				}
			})
		})
	}
}

func TestAJournalThatCannotBe(t *testing.T) {
	t.Parallel()
	id, none := sign.Hash{1}.String(), `["`+base64.StdEncoding.EncodeToString(make([]byte, reputation.FactSize))+`"]`
	f := reputation.Fact{ID: sign.Hash{1}, Kind: reputation.Kept, Subject: key(1), Rater: self, Value: token, At: now}
	good, err := json.Marshal([][]byte{f.Marshal()})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		"x": "[]", "o/zz": "[]", "q/" + id: "[]", "o/" + id: none, "r/" + id: `{}`, "p/" + id: string(good),
	} {
		s := store.NewMemory()
		if err := s.Write(t.Context(), store.Put{Kind: "fact", Key: key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
		if _, err := book.Open(t.Context(), config(s)); err == nil {
			t.Errorf("%q was read", key)
		}
	}
}

// Power is cut before and after every write of a book. The next one has everything that an earlier write had journalled,
// with its source, and what it has is complete: it learns the rest anew and then computes the same scores.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	for _, when := range []store.When{store.Before, store.After} {
		for n := 1; crashAt(t, n, when); n++ {
			if n > 10 {
				t.Fatal("more writes than steps")
			}
		}
	}
}

func crashAt(t *testing.T, n int, when store.When) (crashed bool) {
	rec := reputation.Fact{
		ID: sign.Hash{9}, Kind: reputation.AuditPassed, Role: reputation.Provider, Subject: key(1), At: now,
	}
	src := book.Source{Record: sign.Hash{8}, Tx: "audit"}
	own := leaseOf(1, key(1), self)
	shown := func(paid market.Amount) chain.Testimony {
		a := public(20, key(1), key(10), paid)
		a.Receipt.Version, a.Receipt.Units, a.Receipt.Seq = verify.ReceiptVersion, 1, 1
		return a
	}
	steps := []func(b *book.Book){ // each is one write
		func(b *book.Book) { b.File(own, receiptOf(own, token/2)) },
		func(b *book.Book) { b.Learn(shown(token)) },
		func(b *book.Book) { b.File(own, receiptOf(own, token)); b.RecordOf(rec, src) },
		func(b *book.Book) { b.Learn(shown(2 * token)) },
	}
	play := func(s store.Store) *book.Book {
		b := open(t, config(s))
		for _, step := range steps {
			step(b)
			b.Write(t.Context())
		}
		return b
	}
	told := func(b *book.Book) (all []book.Told) {
		for _, k := range []sign.Key{key(1), key(10), self} {
			facts, _ := b.Recent(k, 100)
			all = append(all, facts...)
		}
		return all
	}
	want := told(play(store.NewMemory()))
	disk := store.NewMemory()
	power := store.NewCrashing(disk)
	power.CrashAt(n, when)
	play(power)
	select {
	case <-power.Crashed():
		crashed = true
	default:
	}
	done := n - 1 // steps that the journal has
	if when == store.After || !crashed {
		done = min(n, len(steps))
	}
	b, until := open(t, config(disk)), open(t, config(store.NewMemory()))
	for _, step := range steps[:done] {
		step(until)
	}
	if got, want := told(b), told(until); !slices.Equal(got, want) {
		t.Errorf("crash at write %d, side %d: the journal has %+v, want %+v", n, when, got, want)
	}
	h, err := b.History(t.Context(), key(10))
	if _, others := until.Recent(key(10), 0); err != nil || len(h.Receipts) != others {
		t.Errorf("crash at write %d, side %d: %d receipts, want %d: %v", n, when, len(h.Receipts), others, err)
	}
	if got := told(play(disk)); !slices.Equal(got, want) {
		t.Errorf("crash at write %d, side %d: known is %+v, want %+v", n, when, got, want)
	}
	return crashed
}
