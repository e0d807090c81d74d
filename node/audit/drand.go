package audit

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/drand"
)

// DrandRelays are public relays of drand's networks (https://docs.drand.love/developer/http-api). None of them is trusted.
func DrandRelays() []string {
	return []string{"https://api.drand.sh", "https://api2.drand.sh", "https://api3.drand.sh", "https://drand.cloudflare.com"}
}

const (
	// maxRound bounds what a relay answers, bytes.
	maxRound = 4 << 10
	// relayPatience is how long one relay is waited for.
	relayPatience = 5 * time.Second
)

// Relays gets rounds of a drand network from relays, which may be anybody: whoever asks checks what they say.
type Relays struct {
	of     market.Drand
	urls   []string
	client *http.Client
}

// NewRelays makes it of the addresses of relays, https://host each. At least one is needed.
func NewRelays(of market.Drand, urls []string) (*Relays, error) {
	if len(urls) == 0 {
		return nil, errors.New("no drand relay to ask; name one or more in drand.relays of the configuration")
	}
	for _, u := range urls {
		x, err := url.Parse(u)
		if err != nil || x.Host == "" || x.Scheme != "https" && x.Scheme != "http" {
			return nil, fmt.Errorf("drand relay %q is not an address such as https://api.drand.sh", u)
		}
	}
	return &Relays{of: of, urls: urls, client: &http.Client{Timeout: relayPatience}}, nil
}

// Round is a round's signature as the first relay tells it that has one which check takes. chain.ErrNotFound when relays answer and
// none has the round.
func (r *Relays) Round(ctx context.Context, round uint64, check func(drand.Signature) error) (drand.Signature, error) {
	var errs []error
	missing := false
	for _, u := range r.urls {
		sig, err := r.ask(ctx, u, round)
		if err == nil {
			err = check(sig)
		}
		if err == nil {
			return sig, nil
		}
		missing = missing || errors.Is(err, chain.ErrNotFound)
		errs = append(errs, fmt.Errorf("%s: %w", u, err))
		if ctx.Err() != nil {
			break
		}
	}
	err := fmt.Errorf("round %d of drand: %w", round, errors.Join(errs...))
	if !missing {
		err = fmt.Errorf("%w: %w", chain.ErrDown, err)
	}
	return drand.Signature{}, err
}

func (r *Relays) ask(ctx context.Context, relay string, round uint64) (drand.Signature, error) {
	var sig drand.Signature
	at := fmt.Sprintf("%s/%s/public/%d", strings.TrimRight(relay, "/"), r.of.Chain, round)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return sig, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return sig, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusTooEarly:
		return sig, chain.ErrNotFound
	case resp.StatusCode != http.StatusOK:
		return sig, fmt.Errorf("it answers %s", resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxRound+1))
	if err != nil || len(b) > maxRound {
		return sig, fmt.Errorf("it answers more than %d bytes: %w", maxRound, err)
	}
	return parseRound(b, round)
}

// parseRound reads a relay's answer: {"round": …, "signature": "…"}, and more that follows from them.
func parseRound(b []byte, round uint64) (drand.Signature, error) {
	var sig drand.Signature
	var is struct {
		Round     uint64 `json:"round"`
		Signature string `json:"signature"`
	}
	if err := json.Unmarshal(b, &is); err != nil {
		return sig, fmt.Errorf("not a round of drand: %w", err)
	}
	if is.Round != round || len(is.Signature) != 2*drand.SignatureSize {
		return sig, fmt.Errorf("round %d with %d digits of a signature", is.Round, len(is.Signature))
	}
	if _, err := hex.Decode(sig[:], []byte(is.Signature)); err != nil {
		return sig, fmt.Errorf("not a round of drand: %w", err)
	}
	return sig, nil
}
