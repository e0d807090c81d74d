package entries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/entry"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify/audit"
)

var genesis = market.Genesis{
	Network: "client", Chain: sign.Sum([]byte("chain")), Symbol: "STAR", Decimals: 6, SlotMillis: 100, IntervalSlots: 10, Simulated: true,
}

func keyOf(i int) sign.Private {
	seed, err := p2p.SeedOf(p2ptest.Key(i))
	if err != nil {
		panic(err)
	}
	return sign.NewPrivate(seed)
}

func offer(provider sign.Private, seq uint64, price market.Price) []byte {
	b, err := market.Offer{
		Seq: seq, Class: "cpu", Region: "local", Units: 1, Total: 2, PerUnit: market.Resources{MilliCPU: 1000, MemoryMiB: 64, DiskMiB: 16},
		Price: price, MinSlots: 1, MaxSlots: 1000, Runtimes: []string{"wasm"}, Payout: provider.Key(),
		NotBefore: time.Now().Add(-time.Minute), Expires: time.Now().Add(time.Minute), Addrs: []string{"/ip4/10.0.0.1/tcp/1"}, GenesisHash: genesis.Hash(),
	}.Encode(genesis.Domain(), provider)
	if err != nil {
		panic(err)
	}
	return b
}

// fake is an entry peer that says what a test wants.
type fake struct {
	host      *p2p.Host
	slot      atomic.Uint64
	hang      atomic.Bool // answers nothing any more
	offers    atomic.Pointer[[][]byte]
	published atomic.Int64
	called    atomic.Int64
	others    atomic.Pointer[[]peer.AddrInfo]
	roster    atomic.Pointer[audit.Roster]
	recent    atomic.Pointer[audit.Recent]
}

func newFake(t *testing.T, i int, g market.Genesis) *fake {
	t.Helper()
	f := &fake{host: p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(i), Network: g.Tag(), NAT: p2p.NAT{Serve: true}})}
	f.slot.Store(1000)
	f.say()
	s, err := entry.Serve(f.host, entry.Config{
		Genesis: g, Log: p2ptest.Quiet(), Market: f, Audits: f,
		Slot: func() (market.Slot, bool) { return market.Slot(f.slot.Load()), true },
		Others: func() []peer.AddrInfo {
			if o := f.others.Load(); o != nil {
				return *o
			}
			return nil
		},
		RPC: func(context.Context, []byte) ([]byte, error) {
			f.called.Add(1)
			time.Sleep(10 * time.Millisecond) // several are under way at a time
			return []byte(`{"jsonrpc":"2.0","id":1,"result":5}`), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return f
}

func (f *fake) wait(ctx context.Context) error {
	if f.hang.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (f *fake) FindSigned(ctx context.Context, _ market.Class, _ []market.Region, _ int) ([][]byte, error) {
	return *f.offers.Load(), f.wait(ctx)
}

func (*fake) Peers() int { return 7 }

func (f *fake) PublishFor(ctx context.Context, _ peer.ID, _ market.Order, _ []byte) (int, error) {
	if err := f.wait(ctx); err != nil {
		return 0, err
	}
	f.published.Add(1)
	return 3, nil
}

func (f *fake) Roster(_ context.Context, w audit.Window) (audit.Roster, error) {
	if r := f.roster.Load(); r != nil && w == 7 {
		return *r, nil
	}
	return nil, errors.New("another window")
}

func (f *fake) Recent(_ context.Context, w audit.Window) (audit.Recent, error) {
	if r := f.recent.Load(); r != nil && w == r.Known {
		return *r, nil
	}
	return audit.Recent{}, errors.New("another window")
}

func (f *fake) say(offers ...[]byte) { f.offers.Store(&offers) }

// connected is a client's keeper that knows these entries and is connected to as many as want.
func connected(t *testing.T, want int, entries ...*fake) *Keeper {
	t.Helper()
	return connectedTo(t, slog.New(slog.DiscardHandler), want, entries...)
}

func connectedTo(t *testing.T, log *slog.Logger, want int, entries ...*fake) *Keeper {
	t.Helper()
	host, err := p2p.NewLight(p2p.Config{Key: p2ptest.Key(90), Network: genesis.Tag(), Logger: p2ptest.Quiet()}, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	var given []peer.AddrInfo
	for _, e := range entries {
		given = append(given, e.host.AddrInfo())
	}
	k := New(host, genesis, t.TempDir(), given, log)
	k.Moved = func(context.Context) {}
	p2ptest.Go(t, func(ctx context.Context) error { k.Run(ctx); return nil })
	until(t, "the entries are connected", func() bool { return len(k.Entries()) == want })
	return k
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// TestHiddenOffers: what one entry hides or shows in an old version, the other one shows.
func TestHiddenOffers(t *testing.T) {
	t.Parallel()
	honest, liar := newFake(t, 1, genesis), newFake(t, 2, genesis)
	cheap, dear := keyOf(11), keyOf(12)
	honest.say(offer(cheap, 5, 10), offer(dear, 5, 100))
	forged := offer(cheap, 9, 9000)
	forged[len(forged)-1] ^= 1
	liar.say(offer(dear, 5, 100), offer(cheap, 4, 5000), forged, []byte("noise"))
	l := connected(t, 2, honest, liar)
	found, err := l.Find(t.Context(), "cpu", nil, 10)
	if err != nil {
		t.Fatal(err)
	}
	prices := map[sign.Key]market.Price{}
	for _, o := range found {
		prices[o.Provider] = o.Price
	}
	if len(found) != 2 || prices[cheap.Key()] != 10 || prices[dear.Key()] != 100 {
		t.Errorf("found %v", prices)
	}
}

// TestSilentEntry: an entry that answers nothing holds nothing up for long; the other's answers count.
func TestSilentEntry(t *testing.T) {
	t.Parallel()
	honest, silent := newFake(t, 1, genesis), newFake(t, 2, genesis)
	honest.say(offer(keyOf(11), 1, 10))
	l := connected(t, 2, silent, honest)
	silent.hang.Store(true)
	if found, err := l.Find(t.Context(), "cpu", nil, 10); err != nil || len(found) != 1 {
		t.Errorf("found %d offers (%v)", len(found), err)
	}
	o := market.Order{
		Class: "cpu", Count: 1, UnitsPer: 1, Runtime: "wasm", Slots: 100, ReplyKey: market.ReplyKey{1}, Draw: 1, Expires: time.Now().Add(time.Minute),
	}
	o, env, err := market.SealOrder(genesis.Domain(), o, keyOf(90))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := l.Publish(t.Context(), o, env); n != 3 || err != nil || honest.published.Load() != 1 {
		t.Errorf("published to %d neighbours (%v)", n, err)
	}
}

// An entry of another network is not used, also when it was given first.
func TestOtherGenesis(t *testing.T) {
	t.Parallel()
	other := genesis
	other.IntervalSlots = 20
	foreign, honest := newFake(t, 1, other), newFake(t, 2, genesis)
	k := connected(t, 1, foreign, honest)
	if e := k.Entries(); e[0] != honest.host.ID() {
		t.Errorf("connected to %v", e)
	}
	until(t, "it is known why the other one is not used", func() bool { return why(k) != "" })
	if !k.alone() {
		t.Error("an entry of another network counts as one of this")
	}
}

// An entry that shows a client a set of judges without those who are honest is not believed: two must tell the same one.
func TestAttackEntryHidesJudges(t *testing.T) {
	t.Parallel()
	var all audit.Roster
	for i := range byte(5) {
		all = append(all, audit.Member{Key: sign.Key{1 + i}, Owner: sign.Key{1 + i}, Weight: 10})
	}
	friends := all[3:]
	a, b := newFake(t, 1, genesis), newFake(t, 2, genesis)
	k := connected(t, 2, a, b)
	a.roster.Store(&all)
	b.roster.Store(&friends)
	if r, err := k.Roster(t.Context(), 7); err == nil {
		t.Errorf("entries tell %d and %d judges, and %d are believed", len(all), len(friends), len(r))
	}
	b.roster.Store(&all)
	if r, err := k.Roster(t.Context(), 7); err != nil || !slices.Equal(r, all) {
		t.Errorf("two tell the same: %v: %v", r, err)
	}
	back := audit.Roster{all[1], all[0], all[2]}
	b.roster.Store(&back)
	if _, err := k.Roster(t.Context(), 7); err == nil {
		t.Error("one of two is none, and the other is believed alone")
	}
	if _, err := k.Roster(t.Context(), 8); err == nil {
		t.Error("nobody tells it, and there is one")
	}
}

// An entry that hides an audit, so that its client takes a record for fresh that is too old, is not believed: two must tell the same ones.
func TestAttackEntryHidesAudits(t *testing.T) {
	t.Parallel()
	a, b := newFake(t, 1, genesis), newFake(t, 2, genesis)
	l := connected(t, 2, a, b)
	all, hidden := audit.Recent{Known: 90, Last: 80, Before: 50}, audit.Recent{Known: 90, Last: 50, Before: 20}
	a.recent.Store(&all)
	b.recent.Store(&hidden)
	if r, err := l.Recent(t.Context(), 90); err == nil {
		t.Errorf("entries disagree, and %+v is believed", r)
	}
	b.recent.Store(&all)
	if r, err := l.Recent(t.Context(), 90); err != nil || r != all {
		t.Errorf("two tell the same: %+v: %v", r, err)
	}
	for _, bad := range []audit.Recent{{Known: 90, Last: 91, Before: 50}, {Known: 90, Last: 50, Before: 80}} {
		a.recent.Store(&bad)
		b.recent.Store(&bad)
		if r, err := l.Recent(t.Context(), 90); err == nil {
			t.Errorf("two tell what cannot be, and %+v is believed", r)
		}
	}
	if _, err := l.Recent(t.Context(), 91); err == nil {
		t.Error("nobody tells it, and it is believed")
	}
}

// TestTrustedAlone: with one entry alone the user is told so once, and how to name a second; not while another is tried, nor
// when there are two.
func TestTrustedAlone(t *testing.T) {
	t.Parallel()
	warned := func(log *written) int { return strings.Count(log.String(), "only one entry peer is known") }
	a, b := newFake(t, 1, genesis), newFake(t, 2, genesis)
	var log written
	k := connectedTo(t, slog.New(slog.NewTextHandler(&log, nil)), 1, a)
	until(t, "the user is told", func() bool { return warned(&log) > 0 })
	if w := k.Warning(); !strings.Contains(w, "--peer ADDR1,ADDR2") {
		t.Errorf("warning %q", w)
	}
	a.others.Store(&[]peer.AddrInfo{b.host.AddrInfo()})
	if _, err := newLedger(nil, k, genesis).Slot(t.Context()); err != nil { // it learns of b by asking a
		t.Fatal(err)
	}
	until(t, "the second entry is connected", func() bool { return len(k.Entries()) == 2 })
	if w := k.Warning(); w != trustedKin { // a named b
		t.Errorf("with two entries of one source: %q", w)
	}
	b.host.Close()
	until(t, "the second entry is given up", func() bool { return len(k.Entries()) == 1 && why(k) != "" })
	if w := k.Warning(); w != trustedKin {
		t.Errorf("one of the same source that was seen and is away: %q", w)
	}
	if n := warned(&log); n != 1 {
		t.Errorf("told %d times", n)
	}

	// A second one that is no entry of this network, or does not answer, is none; one of two is no reason to warn.
	other := genesis
	other.IntervalSlots = 20
	var second, both written
	connectedTo(t, slog.New(slog.NewTextHandler(&second, nil)), 1, newFake(t, 3, genesis), newFake(t, 4, other))
	until(t, "the user is told", func() bool { return warned(&second) == 1 })
	k = connectedTo(t, slog.New(slog.NewTextHandler(&both, nil)), 2, newFake(t, 5, genesis), newFake(t, 6, genesis))
	if n := warned(&both); n != 0 || k.Warning() != "" {
		t.Errorf("with two entries told %d times", n)
	}
}

// TestAttackSecondWitness: an entry that names the second one is two witnesses to nobody: its user is told so, another one that the
// user gives is entered besides and is what the first is compared with.
func TestAttackSecondWitness(t *testing.T) {
	t.Parallel()
	liar, friend, honest := newFake(t, 1, genesis), newFake(t, 2, genesis), newFake(t, 3, genesis)
	liar.others.Store(&[]peer.AddrInfo{friend.host.AddrInfo()})
	k := connected(t, 2, liar)
	until(t, "the user is told", func() bool { return k.Warning() == trustedKin })
	tun := &tunnel{k: k}
	k.give([]peer.AddrInfo{honest.host.AddrInfo()})
	k.poke()
	until(t, "one apart is connected", func() bool { return len(k.Entries()) == 3 })
	name := strings.TrimPrefix(Endpoints[1], "http://")
	if e, err := tun.pick(name); err != nil || e != honest.host.ID() || k.Warning() != "" {
		t.Errorf("the second witness is %s (%v), the user is told %q", e, err, k.Warning())
	}
	again := New(k.host, genesis, k.home, nil, p2ptest.Quiet()) // after a restart
	again.mu.Lock()
	defer again.mu.Unlock()
	all := again.all
	if again.apart(all[liar.host.ID()], all[friend.host.ID()]) || !again.apart(all[liar.host.ID()], all[honest.host.ID()]) {
		t.Error("who named whom is not remembered")
	}
}

// TestApart: two entries in one network of a cloud are no two witnesses, whoever gave them; those at home are.
func TestApart(t *testing.T) {
	t.Parallel()
	host, err := p2p.NewLight(p2p.Config{Key: p2ptest.Key(90), Network: genesis.Tag(), Logger: p2ptest.Quiet()}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	k := New(host, genesis, "", nil, p2ptest.Quiet())
	at := func(i int, addrs ...string) *candidate {
		c := &candidate{known: known{ID: fmt.Sprint(i), Given: true}, peer: peer.AddrInfo{ID: peer.ID(fmt.Sprint(i))}}
		for _, a := range addrs {
			c.peer.Addrs = append(c.peer.Addrs, ma.StringCast(a))
		}
		return c
	}
	for _, c := range []struct {
		a, b  *candidate
		apart bool
	}{
		{at(1, "/ip4/52.1.0.1/tcp/1"), at(2, "/ip4/52.1.9.9/tcp/1"), false},
		{at(1, "/ip4/52.1.0.1/tcp/1"), at(2, "/ip4/52.2.0.1/tcp/1"), true},
		{at(1, "/ip4/52.1.0.1/tcp/1", "/ip6/2600:1f00::1/tcp/1"), at(2, "/ip4/52.2.0.1/tcp/1", "/ip6/2600:1f00:1::1/tcp/1"), false},
		{at(1, "/ip4/192.168.1.2/tcp/1"), at(2, "/ip4/192.168.1.3/tcp/1"), true},
		{at(1, "/dns4/a.example/tcp/1"), at(2, "/dns4/b.example/tcp/1"), true},
		{at(1), at(1), false},
	} {
		if got := k.apart(c.a, c.b); got != c.apart {
			t.Errorf("%v and %v: apart %v", c.a.peer.Addrs, c.b.peer.Addrs, got)
		}
	}
}

// written is what was logged.
type written struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// payer is a chain's program that signs and sends everything.
type payer struct{ settle.Chain }

func (payer) Sign(context.Context, []svm.Instruction, []svm.Table, ...sign.Signer) (chain.Prepared, error) {
	return chain.Prepared{ID: "tx"}, nil
}

func (payer) Send(context.Context, chain.Prepared) error { return nil }

// TestSlots: of two slots the lower counts, and while they are far apart nothing is paid.
func TestSlots(t *testing.T) {
	t.Parallel()
	honest, liar := newFake(t, 1, genesis), newFake(t, 2, genesis)
	k := connected(t, 2, honest, liar)
	l := newLedger(chaintest.NewChain(chaintest.Config{}).Ledger(keyOf(90).Key()), k, genesis)
	p := &programLedger{payer{}, l}
	slot := func() market.Slot {
		t.Helper()
		s, err := l.Slot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	liar.slot.Store(1000 + uint64(l.apart))
	if s := slot(); s != 1000 {
		t.Errorf("slot %d, want the lower one, 1000", s)
	}
	tx, err := p.Sign(t.Context(), nil, nil)
	if err != nil {
		t.Fatalf("entries that differ by little: %v", err)
	}
	liar.slot.Store(1_000_000)
	if s := slot(); s != 1000 {
		t.Errorf("slot %d, want the lower one, 1000", s)
	}
	if _, err := p.Sign(t.Context(), nil, nil); !errors.Is(err, ErrDisagree) || !errors.Is(err, chain.ErrDown) {
		t.Errorf("a payment is signed while entries disagree: %v", err)
	}
	if err := p.Send(t.Context(), tx); !errors.Is(err, ErrDisagree) {
		t.Errorf("a payment is sent while entries disagree: %v", err)
	}
	liar.slot.Store(1001)
	slot()
	if err := p.Send(t.Context(), tx); err != nil {
		t.Errorf("a payment when they agree again: %v", err)
	}
	// An entry that has not seen the chain says nothing about it.
	liar.slot.Store(0)
	if s := slot(); s != 1000 {
		t.Errorf("slot %d, want 1000", s)
	}
	honest.slot.Store(0)
	if _, err := l.Slot(t.Context()); !errors.Is(err, chain.ErrDown) {
		t.Errorf("nobody knows the slot: %v", err)
	}
}

// TestTunnel: the two Endpoints of the chain are two entries; one stands for both only where no other was ever seen.
func TestTunnel(t *testing.T) {
	t.Parallel()
	a, b := newFake(t, 1, genesis), newFake(t, 2, genesis)
	k := connected(t, 1, a)
	tun := &tunnel{k: k}
	pick := func(i int) (peer.ID, error) { return tun.pick(strings.TrimPrefix(Endpoints[i], "http://")) }
	for i := range Endpoints {
		if e, err := pick(i); err != nil || e != a.host.ID() {
			t.Errorf("with one entry, endpoint %d is %s (%v)", i, e, err)
		}
	}
	a.others.Store(&[]peer.AddrInfo{b.host.AddrInfo()})
	if _, err := newLedger(nil, k, genesis).Slot(t.Context()); err != nil { // it learns of b by asking a
		t.Fatal(err)
	}
	until(t, "the second entry is connected", func() bool { return len(k.Entries()) == 2 })
	first, err1 := pick(0)
	second, err2 := pick(1)
	if err1 != nil || err2 != nil || first == second {
		t.Errorf("with two entries the Endpoints are %s and %s (%v, %v)", first, second, err1, err2)
	}
	b.host.Close()
	until(t, "the second entry is given up", func() bool { return len(k.Entries()) == 1 })
	if e, err := pick(1); !errors.Is(err, ErrNoEntry) {
		t.Errorf("the second endpoint is %s while the second entry is away (%v)", e, err)
	}
	// What was learned is remembered.
	found := false
	for _, e := range readEntries(k.home) {
		found = found || e.ID == b.host.ID().String() && e.Shown && !e.Given
	}
	if !found {
		t.Error("the second entry is not remembered")
	}
}

// TestCallsWait: a client that wants to call the chain more often than its entry passes calls on is refused none of
// them. They wait, but not for longer than their caller does.
func TestCallsWait(t *testing.T) {
	t.Parallel()
	e := newFake(t, 1, genesis)
	tun := &tunnel{k: connected(t, 1, e)}
	call := func(ctx context.Context, endpoint string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader("{}"))
		if err != nil {
			return err
		}
		_, err = tun.RoundTrip(r)
		return err
	}
	var calls errgroup.Group
	for i := range entry.CallBurst + 15 {
		calls.Go(func() error { return call(t.Context(), Endpoints[i%2]) })
	}
	if err := calls.Wait(); err != nil {
		t.Error(err)
	}
	tun.pace(e.host.ID()).ReserveN(time.Now(), callBurst)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if before := e.called.Load(); call(ctx, Endpoints[0]) == nil || ctx.Err() != nil || e.called.Load() != before {
		t.Error("a call whose turn comes too late was not refused at once")
	}
}

// TestPace: no more calls are under way than an entry answers of one peer, and one that waits for a place ends with its
// caller.
func TestPace(t *testing.T) {
	t.Parallel()
	p := newPace()
	var ends []func()
	for range callsAtOnce {
		done, err := p.turn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, done)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error, 1)
	go func() {
		_, err := p.turn(ctx)
		waits <- err
	}()
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("a call over the bound: %v", err)
	}
	ends[0]()
	if done, err := p.turn(t.Context()); err != nil {
		t.Error(err)
	} else {
		done()
	}
	if callsAtOnce >= entry.CallsAtOnce {
		t.Errorf("%d at once, an entry answers %d", callsAtOnce, entry.CallsAtOnce)
	}
}

// why returns the reasons why the known entries cannot be used.
func why(k *Keeper) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	text := ""
	for _, c := range k.all {
		if c.reason != "" {
			text += fmt.Sprintf("; %s: %s", c.peer.ID, c.reason)
		}
	}
	return text
}
