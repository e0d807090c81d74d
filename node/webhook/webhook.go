// Package webhook notifies addresses on the web of changes of a job's state. A delivery is journalled in the write that
// changes the state, so that none is lost. It is retried until it is accepted or its tries are used up, also by the
// next process of the peer. So it may arrive twice, with the same Starling-Delivery.
//
//	POST /hook HTTP/1.1
//	Content-Type: application/json
//	Starling-Event: succeeded
//	Starling-Delivery: jk3v…/0/…
//	Starling-Signature: t=1700000000,v1=<hex HMAC-SHA256(secret, "1700000000." ‖ body)>
//
//	{"id":…,"event":"succeeded","at":…,"job":{…}}
//
// The submitter of a job chooses the hosts that this peer connects to. Addresses are therefore checked after names are
// resolved, at the moment of dialling: only public ones are dialled, unless the configuration allows others. Redirects
// are not followed and no proxy is used.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/closed"
)

var (
	// ErrPrivate means that an address is not on the public internet.
	ErrPrivate = errors.New("not a public address")
	// ErrDelivery means that a journalled delivery is malformed.
	ErrDelivery = errors.New("webhook delivery")
	// ErrFull means that too many deliveries wait already.
	ErrFull = errors.New("too many webhook deliveries wait")
)

// The headers of a delivery.
const (
	HeaderEvent     = "Starling-Event"
	HeaderDelivery  = "Starling-Delivery"
	HeaderSignature = "Starling-Signature"
)

const (
	// MaxWaiting bounds the deliveries that wait.
	MaxWaiting = 10_000
	// MaxBody bounds the body of a delivery, bytes.
	MaxBody = 64 << 10

	workers    = 8
	tryTimeout = 10 * time.Second
	firstWait  = time.Second
	longestTry = time.Hour
	// giveUp is how long a delivery is tried.
	giveUp    = 24 * time.Hour
	maxAnswer = 4 << 10
)

// Delivery is one message to one address.
type Delivery struct {
	ID      string          `json:"id"` // <job>/<hook>/<time>: in the order in which they are delivered
	Job     string          `json:"job"`
	Hook    int             `json:"hook"` // place among the job's webhooks
	URL     string          `json:"url"`
	Event   string          `json:"event"`
	Signed  bool            `json:"signed,omitempty"`
	Body    json.RawMessage `json:"body"`
	Created time.Time       `json:"created"`
	Tries   int             `json:"tries,omitempty"`
	Next    time.Time       `json:"next,omitzero"` // not tried before
}

// Body is the posted document.
type Body struct {
	ID    string    `json:"id"`
	Event string    `json:"event"`
	At    time.Time `json:"at"`
	Job   any       `json:"job"`
}

// New makes a delivery of a job's webhook. It has one place in the order of its job and hook by the time.
func New(job string, hook int, url, event string, signed bool, at time.Time, about any) (Delivery, error) {
	d := Delivery{
		ID:  fmt.Sprintf("%s/%d/%020d", job, hook, at.UnixNano()),
		Job: job, Hook: hook, URL: url, Event: event, Signed: signed, Created: at.UTC(),
	}
	var err error
	if d.Body, err = json.Marshal(Body{ID: d.ID, Event: event, At: d.Created, Job: about}); err != nil {
		return d, fmt.Errorf("%w: %w", ErrDelivery, err)
	}
	return d, d.check()
}

func (d Delivery) check() error {
	switch {
	case d.ID == "" || len(d.ID) > 256 || !strings.HasPrefix(d.ID, fmt.Sprintf("%s/%d/", d.Job, d.Hook)) || d.Hook < 0:
		return fmt.Errorf("%w: id %.80q", ErrDelivery, d.ID)
	case len(d.Body) == 0 || len(d.Body) > MaxBody || !json.Valid(d.Body):
		return fmt.Errorf("%w: a body of %d bytes, at most %d", ErrDelivery, len(d.Body), MaxBody)
	case d.Tries < 0:
		return fmt.Errorf("%w: %d tries", ErrDelivery, d.Tries)
	}
	return nil
}

// deliveries has the journal's deliveries by Delivery.ID.
var deliveries = journal.Define[string, Delivery]("webhook")

// Put returns the journal's record of a delivery, for the write that changes the job's state. It returns ErrDelivery.
func (d Delivery) Put() (store.Put, error) {
	p, err := deliveries.Encode(d.ID, d)
	if err != nil {
		return store.Put{}, fmt.Errorf("%w: %w", ErrDelivery, err)
	}
	return p, nil
}

// load calls fn for each delivery of the journal, in the order of their keys. It returns ErrDelivery.
func load(ctx context.Context, s journal.Store, fn func(Delivery)) error {
	return deliveries.List(ctx, s, "", func(key string, d Delivery) error {
		err := d.check()
		if err == nil && d.ID != key {
			err = fmt.Errorf("%w: id %.80q", ErrDelivery, d.ID)
		}
		if err != nil {
			return fmt.Errorf("reading %s %s: %w", deliveries.Kind(), key, err)
		}
		fn(d)
		return nil
	})
}

// Config is the configuration of a Queue.
type Config struct {
	Store   journal.Store
	Private bool // addresses that are not public are connected to
	// Secret returns the key that signs the deliveries of a job's webhook. It is not kept.
	Secret func(ctx context.Context, job string, hook int) ([]byte, error)
	Log    *slog.Logger
}

// Queue has the deliveries that wait. Open starts nothing; Run delivers.
type Queue struct {
	cfg    Config
	client *http.Client

	mu      sync.Mutex
	waiting map[string][]Delivery // by job and hook, in order
	busy    map[string]bool
	count   int
	wake    chan struct{} // holds a token when there is something new
}

// Open reads the deliveries of an earlier process.
func Open(ctx context.Context, cfg Config) (*Queue, error) {
	q := &Queue{cfg: cfg, waiting: map[string][]Delivery{}, busy: map[string]bool{}, wake: make(chan struct{}, 1)}
	dialer := &net.Dialer{Timeout: tryTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		return q.mayDial(address)
	}}
	q.client = &http.Client{
		Timeout: tryTimeout,
		Transport: &http.Transport{
			DialContext: dialer.DialContext, DisableKeepAlives: true, TLSHandshakeTimeout: tryTimeout,
			ResponseHeaderTimeout: tryTimeout, MaxResponseHeaderBytes: maxAnswer,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return q, load(ctx, cfg.Store, q.add)
}

func (d Delivery) line() string { return fmt.Sprintf("%s/%d", d.Job, d.Hook) }

// add queues a journalled delivery; q.mu need not be held while q is opened.
func (q *Queue) add(d Delivery) {
	q.waiting[d.line()] = append(q.waiting[d.line()], d)
	q.count++
}

// Room returns ErrFull when nothing more may be queued: a job's state must not wait for its webhooks.
func (q *Queue) Room() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.count >= MaxWaiting {
		return fmt.Errorf("%w: %d", ErrFull, q.count)
	}
	return nil
}

// Added queues deliveries that the journal has.
func (q *Queue) Added(ds ...Delivery) {
	q.mu.Lock()
	for _, d := range ds {
		q.add(d)
	}
	q.mu.Unlock()
	q.poke()
}

func (q *Queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Waiting is how many deliveries wait.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count
}

// Run delivers until ctx ends, and returns when every try has.
func (q *Queue) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, workers)
	for {
		d, wait, ok := q.next(time.Now())
		if !ok {
			t := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				t.Stop()
				return
			case <-q.wake:
			case <-t.C:
			}
			t.Stop()
			continue
		}
		select {
		case <-ctx.Done():
			return
		case slots <- struct{}{}:
		}
		wg.Go(func() {
			defer func() { <-slots }()
			q.try(ctx, d)
		})
	}
}

// next takes the first delivery that is due, or returns the time until one is.
func (q *Queue) next(now time.Time) (Delivery, time.Duration, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait := longestTry
	for line, ds := range q.waiting {
		if q.busy[line] {
			continue
		}
		if until := ds[0].Next.Sub(now); until > 0 {
			wait = min(wait, until)
			continue
		}
		q.busy[line] = true
		return ds[0], 0, true
	}
	return Delivery{}, wait, false
}

// try delivers d once, and journals the result. While the peer stops nothing is journalled: the next process tries
// again.
func (q *Queue) try(ctx context.Context, d Delivery) {
	final, err := q.post(ctx, d)
	if ctx.Err() != nil {
		return
	}
	log := q.cfg.Log.With("job", d.Job, "event", d.Event, "webhook", d.Hook)
	d.Tries++
	over := err == nil || final || time.Since(d.Created) > giveUp
	var b journal.Batch
	if over {
		deliveries.Delete(&b, d.ID)
		if err != nil {
			log.Warn("a webhook was given up", "tries", d.Tries, "err", err)
		}
	} else {
		d.Next = time.Now().Add(backoff(d.Tries))
		deliveries.Put(&b, d.ID, d)
		log.Debug("a webhook is tried again", "tries", d.Tries, "err", err)
	}
	if werr := b.Commit(ctx, q.cfg.Store); werr != nil && ctx.Err() == nil {
		log.Error("the result of a delivery is not journalled; it may be delivered again", "err", werr)
	}
	q.mu.Lock()
	ds := q.waiting[d.line()]
	switch {
	case !over:
		ds[0] = d
	case len(ds) == 1:
		delete(q.waiting, d.line())
		q.count--
	default:
		q.waiting[d.line()] = ds[1:]
		q.count--
	}
	delete(q.busy, d.line())
	q.mu.Unlock()
	q.poke()
}

// backoff returns the delay after a number of tries, from 1.
func backoff(tries int) time.Duration {
	d := firstWait
	for range min(tries-1, 20) {
		d *= 2
	}
	return min(d, longestTry)
}

// post sends d once. A final error will not be another one next time.
func (q *Queue) post(ctx context.Context, d Delivery) (final bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(d.Body))
	if err != nil {
		return true, errors.New("the address cannot be called")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "starling-webhook/1")
	req.Header.Set(HeaderEvent, d.Event)
	req.Header.Set(HeaderDelivery, d.ID)
	if d.Signed {
		secret, err := q.cfg.Secret(ctx, d.Job, d.Hook)
		if err != nil {
			return false, fmt.Errorf("signing: %w", err)
		}
		req.Header.Set(HeaderSignature, Sign(secret, time.Now(), d.Body))
	}
	resp, err := q.client.Do(req)
	if err != nil {
		return errors.Is(err, ErrPrivate), err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // its text does not matter
	switch {
	case resp.StatusCode/100 == 2:
		return false, nil
	case resp.StatusCode/100 == 3:
		return true, fmt.Errorf("answered %s: redirects are not followed", resp.Status)
	}
	return resp.StatusCode == http.StatusGone, fmt.Errorf("answered %s", resp.Status)
}

// Sign is the signature of a body sent at a time.
func Sign(secret []byte, at time.Time, body []byte) string {
	m := hmac.New(sha256.New, secret)
	fmt.Fprintf(m, "%d.", at.Unix())
	m.Write(body)
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(m.Sum(nil)))
}

// Check returns ErrPrivate if an address names a host that the queue never connects to: localhost, or an IP address
// that is not public. It resolves no names; those are checked when the queue connects.
func (q *Queue) Check(address string) error {
	u, err := url.Parse(address)
	if err != nil || q.cfg.Private {
		return err
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if err != nil && u.Hostname() != "localhost" || err == nil && closed.Why(ip.Unmap()) == "" {
		return nil
	}
	return fmt.Errorf("%.80s: %w; set buy.webhooks.private in config.yaml to allow it", u.Host, ErrPrivate)
}

// mayDial checks an address that a name was resolved to.
func (q *Queue) mayDial(address string) error {
	if q.cfg.Private {
		return nil
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil || closed.Why(at.Addr()) != "" {
		return fmt.Errorf("%s: %w; buy.webhooks.private would allow it", address, ErrPrivate)
	}
	return nil
}
