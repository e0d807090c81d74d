package entries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/time/rate"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/entry"
	"github.com/starling-network/starling/node/onchain"
	"github.com/starling-network/starling/node/settle"
)

// Two entries may differ about the slot by as much: their chains' servers lag, and one may go by the clock while its
// server is away.
const (
	slotsApart = 50
	timeApart  = 20 * time.Second
)

// ledger is the chain as this client believes it: the slot from all entries, payments only while they agree.
type ledger struct {
	chain.Ledger
	k     *Keeper
	apart market.Slot // that entries may differ by

	mu    sync.Mutex
	split error // entries differ; nil when they agree
}

// Believe returns the chain with the entries' slot. While the entries disagree, it refuses payments.
func (k *Keeper) Believe(a onchain.Access, g market.Genesis) onchain.Access {
	l := newLedger(a.Ledger, k, g)
	a.Ledger = l
	if a.Program != nil {
		a.Program = &programLedger{a.Program, l}
	}
	return a
}

func newLedger(inner chain.Ledger, k *Keeper, g market.Genesis) *ledger {
	return &ledger{Ledger: inner, k: k, apart: market.Slot(max(g.SlotsIn(timeApart), slotsApart))}
}

// Slot is the lowest that an entry reports: a client with too early a slot refuses receipts and pays nothing too much.
func (l *ledger) Slot(ctx context.Context) (market.Slot, error) {
	said, err := everyone(ctx, l.k, slotTime, func(ctx context.Context, e peer.ID) (entry.Hello, error) {
		h, err := entry.Ask(ctx, l.k.host, e)
		if err == nil {
			err = l.k.pin.Check(h.Genesis)
		}
		if err == nil && h.Slot == 0 {
			err = errors.New("the entry has not reached the chain")
		}
		if err == nil {
			l.k.learn(e, h.Others)
		}
		return h, err
	})
	if err != nil {
		return 0, fmt.Errorf("reading the slot from entry peers: %w: %w", chain.ErrDown, err)
	}
	var slots []market.Slot
	for _, h := range said {
		slots = append(slots, h.Slot)
	}
	low, high := slices.Min(slots), slices.Max(slots)
	var split error
	if high-low > l.apart {
		split = fmt.Errorf("%w: %d and %d; nothing is paid until they agree: %w", ErrDisagree, low, high, chain.ErrDown)
	}
	l.mu.Lock()
	if (split == nil) != (l.split == nil) {
		if split != nil {
			l.k.log.Warn("entry peers disagree about the slot; the lower one counts and nothing is paid", "low", low,
				"high", high)
		} else {
			l.k.log.Info("entry peers agree about the slot again", "slot", low)
		}
	}
	l.split = split
	l.mu.Unlock()
	return low, nil
}

// Tip returns Slot twice: entries do not report the final slot.
func (l *ledger) Tip(ctx context.Context) (chain.Tip, error) {
	slot, err := l.Slot(ctx)
	return chain.Tip{Confirmed: slot, Final: slot}, err
}

// Block implements chain.Blocks: the block on which two entries agree, if the ledger goes by way of them.
func (l *ledger) Block(ctx context.Context, from market.Slot) (chain.Block, error) {
	b, ok := l.Ledger.(chain.Blocks)
	if !ok {
		return chain.Block{}, fmt.Errorf("this client's view of the chain has no blocks: %w", chain.ErrDown)
	}
	return b.Block(ctx, from)
}

// agreed is why nothing may be paid, or nil.
func (l *ledger) agreed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.split
}

// programLedger is the chain's program as this client believes it: nothing is paid while entries disagree.
type programLedger struct {
	settle.Chain
	ledger *ledger
}

// Sign implements escrow.Ledger.
func (l *programLedger) Sign(ctx context.Context, instructions []svm.Instruction, tables []svm.Table,
	others ...sign.Signer) (chain.Prepared, error) {
	if err := l.ledger.agreed(); err != nil {
		return chain.Prepared{}, err
	}
	return l.Chain.Sign(ctx, instructions, tables, others...)
}

// Send implements escrow.Ledger.
func (l *programLedger) Send(ctx context.Context, tx chain.Prepared) error {
	if err := l.ledger.agreed(); err != nil {
		return err
	}
	return l.Chain.Send(ctx, tx)
}

// Endpoints are the names of the first and the second entry in chain/solana. The entries behind them change.
var Endpoints = []string{"http://entry-1", "http://entry-2"}

// The call rate is slightly below the entry's limit, since calls may arrive closer together than they were sent.
const (
	callsPerSecond = entry.CallsPerClient * 9 / 10
	callBurst      = entry.CallBurst * 5 / 6
	// callsAtOnce is fewer than an entry answers of one peer at a time: it may see the end of one later than the
	// client.
	callsAtOnce = entry.CallsAtOnce * 3 / 4
)

// tunnel carries JSON-RPC calls over a stream to an entry. The second endpoint is another entry than the first, so that
// two equal answers are independent. One entry serves both only if no other is known. Calls wait for their turn: with
// refusals and separate retries, the calls of a job with many escrows would starve each other.
type tunnel struct{ k *Keeper }

// Transport carries calls to Endpoints over streams to the entries.
func (k *Keeper) Transport() http.RoundTripper { return &tunnel{k: k} }

// RoundTrip implements http.RoundTripper. It returns an error at once if the call's turn comes after its deadline.
func (t *tunnel) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, entry.MaxCall+1))
	r.Body.Close()
	if err != nil {
		return nil, err
	}
	if len(body) > entry.MaxCall {
		return nil, fmt.Errorf("a call of more than %d bytes is not passed on", entry.MaxCall)
	}
	to, err := t.pick(r.URL.Host)
	if err != nil {
		return nil, err
	}
	done, err := t.pace(to).turn(r.Context())
	if err != nil {
		return nil, fmt.Errorf("waiting for the turn of a call: %w", err)
	}
	defer done()
	answer, err := entry.RPC(r.Context(), t.k.host, t.k.tag, to, body)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(answer)),
		Body: io.NopCloser(bytes.NewReader(answer)), Request: r,
	}, nil
}

// pick is the entry behind an endpoint's name now.
func (t *tunnel) pick(name string) (peer.ID, error) {
	live := t.k.Entries()
	switch {
	case len(live) == 0:
		return "", ErrNoEntry
	case !strings.HasSuffix(Endpoints[1], name):
		return live[0], nil
	case len(live) > 1:
		return t.k.second(live), nil
	case t.k.alone():
		return live[0], nil // Keeper.warn has warned its user
	}
	return "", fmt.Errorf("%w: a second entry is needed for a comparison", ErrNoEntry)
}

// pace bounds the calls to one entry.
type pace struct {
	*rate.Limiter
	places chan struct{} // one token for each call that is under way
}

func newPace() *pace {
	return &pace{rate.NewLimiter(callsPerSecond, callBurst), make(chan struct{}, callsAtOnce)}
}

// turn waits until one more call may be made, and returns a function that ends it.
func (p *pace) turn(ctx context.Context) (done func(), err error) {
	if err := p.Wait(ctx); err != nil {
		return nil, err
	}
	select {
	case p.places <- struct{}{}:
		return func() { <-p.places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pace returns the bound of the calls to an entry.
func (t *tunnel) pace(to peer.ID) *pace {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	c := t.k.all[to]
	if c == nil { // it was forgotten a moment ago
		return newPace()
	}
	if c.pace == nil {
		c.pace = newPace()
	}
	return c.pace
}
