package reputation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify/reputation"
)

// Bounds of reading from others.
const (
	// MaxPage is how many receipts one answer has, MaxRecords how many hashes of records.
	MaxPage, MaxRecords = 16, 8
	// readEvery is the interval of requests for a page from one peer.
	readEvery = 15 * time.Second
	// readBusy is how long reading waits at most for orders that are in flight.
	readBusy = 5 * time.Minute
	// readAgain is the time until the next request to a peer, longer if it had no new receipts. It is readMore if there
	// are more pages, readBad after false data, and readAway without an answer, doubling each time.
	readAgain, readMore, readBad, readAway = 10 * time.Minute, time.Minute, 24 * time.Hour, time.Minute
	// maxAnchors bounds the transactions that are read from the chain for one page, maxRecordsRead the fetched records.
	maxAnchors, maxRecordsRead = 4, 2
	// maxVisited is how many peers are remembered as asked, maxAnchorsKept how many transactions as read.
	maxVisited, maxAnchorsKept = 4096, 64
	// answerTime bounds one question, chainTime one read of the chain.
	answerTime, chainTime = 5 * time.Second, 10 * time.Second
)

// Mark is how far a peer's anchored receipts were read: they come in the order of slots, then of leases.
type Mark struct {
	Slot  market.Slot    `json:"slot"`
	Lease market.LeaseID `json:"lease"`
}

// compare is negative when m comes before o.
func (m Mark) compare(o Mark) int {
	return cmp.Or(cmp.Compare(m.Slot, o.Slot), bytes.Compare(m.Lease[:], o.Lease[:]))
}

func markOf(a chain.Testimony) Mark { return Mark{a.In.Slot, a.Receipt.Lease} }

// Page is a peer's answer.
type Page struct {
	Receipts [][]byte // chain.Testimony, at most MaxPage
	More     bool
	Records  []sign.Hash // of its units' newest anchored audits, at most MaxRecords
}

// Checked is the content of a record that was checked, on chain too.
type Checked struct {
	Provider sign.Key
	Answer   sign.Hash // hash of the audit's answer
	At       market.Slot
	Tx       chain.TxID
}

// ReaderConfig is the configuration of a Reader; all of it is required, except Records.
type ReaderConfig struct {
	Book  *Book
	Store journal.Store
	Peers Peers
	// Records is optional; if nil, as on a network without audits, no records are read.
	Records Records
	// Anchor reads the commitment of a final transaction. It returns chain.ErrNotFound or chain.ErrMalformed if there
	// is none.
	Anchor func(ctx context.Context, tx chain.TxID) (chain.Commitment, error)
	// Busy reports whether orders are in flight.
	Busy func() bool
	Log  *slog.Logger
}

// Peers is the other peers with anchored receipts that are read.
type Peers interface {
	// Connected lists the connected peers.
	Connected() []sign.Key
	// Ask requests a peer's anchored receipts after a mark.
	Ask(ctx context.Context, of sign.Key, after Mark) (Page, error)
}

// Records is the audit records of other peers.
type Records interface {
	// Checked fetches a record of a peer and checks all of it, on chain too. market.ErrMalformed, ErrRecord and broken
	// rules are the peer's fault.
	Checked(ctx context.Context, of sign.Key, record sign.Hash) (Checked, error)
}

// Reader reads the anchored receipts of others, a page of one peer at a time:
//
//	connected, dealt with, reached ─┐
//	                                ├─▶ ask for a page ─▶ signatures, root ─▶ anchor ─▶ Book ─▶ journal ─▶ mark
//	buyers that notices name ───────┘
//
// Nothing is read twice, also after a restart: the mark is journalled after the facts before it. New starts nothing;
// Run does.
type Reader struct {
	cfg ReaderConfig

	visits  map[sign.Key]visit
	anchors map[chain.TxID]chain.Commitment
	turns   int // number of requests
}

// visit is how it stands with one peer.
type visit struct {
	Mark
	Asked time.Time `json:"asked"`
	Again time.Time `json:"again"`          // not before then
	Away  int       `json:"away,omitempty"` // how often in a row it did not answer
	Idle  int       `json:"idle,omitempty"` // how often in a row it had nothing new
}

// OpenReader reads the marks of an earlier process.
func OpenReader(ctx context.Context, cfg ReaderConfig) (*Reader, error) {
	r := &Reader{cfg: cfg, visits: map[sign.Key]visit{}, anchors: map[chain.TxID]chain.Commitment{}}
	return r, visitsTable.List(ctx, cfg.Store, "", func(k sign.Key, v visit) error {
		r.visits[k] = v
		return nil
	})
}

// Run reads until ctx ends.
func (r *Reader) Run(ctx context.Context) error {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	waited := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if r.cfg.Busy() && waited < readBusy {
			waited += readEvery
			continue
		}
		waited = 0
		if err := r.Turn(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Log.Debug("reading a peer's anchored leases failed", "err", err)
		}
	}
}

// Turn requests one page from the peer that is due for longest, if any is due.
func (r *Reader) Turn(ctx context.Context) error {
	of, ok := r.next(time.Now())
	if !ok {
		return nil
	}
	r.turns++
	v := r.visits[of]
	v.Asked = time.Now()
	actx, cancel := context.WithTimeout(ctx, answerTime)
	page, err := r.cfg.Peers.Ask(actx, of, v.Mark)
	cancel()
	wait := readAgain
	if err == nil {
		v.Away = 0
		if page.More {
			wait = readMore
		}
		was := v.Mark
		v.Mark, err = r.read(ctx, of, v.Mark, page)
		if v.Idle = min(v.Idle+1, 3); v.Mark != was {
			v.Idle = 0
		}
		if !page.More {
			wait = readAgain << v.Idle
		}
		if err == nil {
			err = r.records(ctx, of, page.Records)
		}
		if bad(err) {
			wait = readBad
		} else if err != nil {
			wait = readMore // the chain is away, most likely: from the mark on again
		}
	} else {
		v.Away = min(v.Away+1, 10)
		wait = readAway << (v.Away - 1)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	v.Again = v.Asked.Add(wait)
	return errors.Join(err, r.note(ctx, of, v))
}

// bad reports whether an error is the fault of the answering peer.
func bad(err error) bool {
	for _, b := range []error{
		chain.ErrTestimony, chain.ErrUnanchored, market.ErrMalformed, chain.ErrMalformed, ErrOrder, ErrRecord,
	} {
		if errors.Is(err, b) {
			return true
		}
	}
	return false
}

// Errors of answers.
var (
	// ErrOrder reports an answer to another question.
	ErrOrder = errors.New("peer answered another request")
	// ErrRecord means that an audit record proves nothing.
	ErrRecord = errors.New("audit record proves nothing")
)

// read processes a page after a mark, and returns the mark up to which it was read. Receipts before a false one count.
func (r *Reader) read(ctx context.Context, of sign.Key, at Mark, page Page) (Mark, error) {
	if len(page.Receipts) > MaxPage || len(page.Records) > MaxRecords {
		return at, fmt.Errorf("%w: %d receipts and %d records", ErrOrder, len(page.Receipts), len(page.Records))
	}
	b, asked := r.cfg.Book, 0
	for _, raw := range page.Receipts {
		a, err := chain.UnmarshalTestimony(raw)
		if err != nil {
			return at, err
		}
		if a.Receipt.Buyer != of || markOf(a).compare(at) <= 0 {
			return at, fmt.Errorf("%w: a lease of %s anchored in slot %d, asked %s after slot %d", ErrOrder,
				a.Receipt.Buyer.Short(), a.In.Slot, of.Short(), at.Slot)
		}
		if b.Knows(a.Receipt) {
			at = markOf(a)
			continue
		}
		if err := a.Check(b.cfg.Genesis.Domain(), proof.Ahead*b.cfg.Genesis.IntervalSlots); err != nil {
			return at, err
		}
		now, err := b.cfg.Slot()
		if err != nil {
			return at, err
		}
		on, known := r.anchors[a.In.Tx]
		if !known {
			if asked++; asked > maxAnchors {
				return at, nil
			}
			on, err = r.anchor(ctx, a.In.Tx)
		}
		old := now > a.In.Slot && uint64(now-a.In.Slot) > proof.Ahead*b.cfg.Genesis.IntervalSlots
		switch {
		case errors.Is(err, chain.ErrNotFound) && old: // an endpoint that forgot it: it counts nothing
		case err != nil:
			return at, err
		default:
			if err := a.CheckOn(on); err != nil {
				return at, err
			}
			b.Learn(a)
		}
		at = markOf(a)
	}
	return at, nil
}

// anchor reads a transaction that is there, once.
func (r *Reader) anchor(ctx context.Context, tx chain.TxID) (chain.Commitment, error) {
	ctx, cancel := context.WithTimeout(ctx, chainTime)
	defer cancel()
	on, err := r.cfg.Anchor(ctx, tx)
	if err != nil {
		return on, err
	}
	for old := range r.anchors {
		if len(r.anchors) < maxAnchorsKept {
			break
		}
		delete(r.anchors, old)
	}
	r.anchors[tx] = on
	return on, nil
}

// records fetches the first records that are not known.
func (r *Reader) records(ctx context.Context, of sign.Key, hashes []sign.Hash) (left error) {
	if r.cfg.Records == nil {
		return nil
	}
	fetched := 0
	for _, h := range hashes {
		if r.cfg.Book.KnowsRecord(h) {
			continue
		}
		if fetched++; fetched > maxRecordsRead {
			break
		}
		rctx, cancel := context.WithTimeout(ctx, chainTime)
		c, err := r.cfg.Records.Checked(rctx, of, h)
		cancel()
		if bad(err) {
			return err
		}
		if err != nil { // another time, if it is still shown then
			left = errors.Join(left, err)
			continue
		}
		r.cfg.Book.recordOf(reputation.Fact{
			ID: c.Answer, Kind: reputation.AuditPassed, Role: reputation.Provider, Subject: c.Provider, At: c.At,
		}, Source{Record: h, Tx: c.Tx})
	}
	return left
}

// note journals the state of a peer, after the facts that it showed.
func (r *Reader) note(ctx context.Context, of sign.Key, v visit) error {
	if !r.cfg.Book.write(ctx) {
		v.Mark = r.visits[of].Mark // it is read again
	}
	r.visits[of] = v
	var b journal.Batch
	visitsTable.Put(&b, of, v)
	for len(r.visits) > maxVisited {
		var oldest sign.Key
		for k, o := range r.visits {
			if oldest.IsZero() || o.Asked.Before(r.visits[oldest].Asked) {
				oldest = k
			}
		}
		delete(r.visits, oldest)
		visitsTable.Delete(&b, oldest)
	}
	return b.Commit(ctx, r.cfg.Store)
}

// next returns the peer that is overdue for longest. Every other time it picks a connected, known or reached peer, so
// that free keys do not delay these.
func (r *Reader) next(now time.Time) (sign.Key, bool) {
	known, heard := r.cfg.Book.readable(r.cfg.Peers.Connected())
	first, then := known, heard
	if r.turns%2 == 1 {
		first, then = heard, known
	}
	for _, among := range [][]sign.Key{first, then} {
		among = slices.DeleteFunc(among, func(k sign.Key) bool { return r.visits[k].Again.After(now) })
		if len(among) > 0 {
			return slices.MinFunc(among, func(x, y sign.Key) int {
				return cmp.Or(r.visits[x].Asked.Compare(r.visits[y].Asked), bytes.Compare(x[:], y[:]))
			}), true
		}
	}
	return sign.Key{}, false
}
