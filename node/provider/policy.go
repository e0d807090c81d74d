package provider

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/verify/reputation"
)

// Policy is what the operator allows beyond the lots themselves. The zero Policy allows everything.
type Policy struct {
	Hours Hours
	// Block are buyers that are not served; the reason is the operator's own note and is not told to them.
	Block map[sign.Key]string
	// Blocked tells who is blocked at run time besides; nil means nobody.
	Blocked func(sign.Key) bool
	// Only are the buyers that are served; none means everybody who is not blocked.
	Only []sign.Key
	// MaxLeasesPerBuyer bounds the leases and holds of one buyer at a time; 0 means no bound.
	MaxLeasesPerBuyer int
	// MinReputation is the least score of a buyer, in millionths: who has less is not served, newcomers neither; 0 means everybody is.
	MinReputation uint32
	Images        Images
	Clusters      Clusters
}

// Clusters is what the operator allows of clusters. The zero Clusters allows all.
type Clusters struct {
	No         bool // it takes part in none
	MaxMembers int  // leases and holds that are members of clusters, at a time; 0 means no bound
}

// Images says which container images may run.
type Images struct {
	allow, deny []imagePattern
}

// imagePattern is a pattern on the repository, the digest, or both.
type imagePattern struct{ repository, digest string }

const (
	maxImagePatterns = 256
	maxImagePattern  = 256
)

// ParseImages reads patterns of images: "docker.io/library/*" (one level), "ghcr.io/acme/**" (any depth), "alpine" (Docker
// Hub's), "sha256:…" (one digest of any repository), "ghcr.io/acme/tool@sha256:…". What deny has is refused; when allow is
// not empty, so is what it has not.
func ParseImages(allow, deny []string) (Images, error) {
	var im Images
	for _, l := range []struct {
		name string
		in   []string
		out  *[]imagePattern
	}{{"allow", allow, &im.allow}, {"deny", deny, &im.deny}} {
		if len(l.in) > maxImagePatterns {
			return Images{}, fmt.Errorf("%s: %d patterns, at most %d", l.name, len(l.in), maxImagePatterns)
		}
		for _, text := range l.in {
			p, err := parseImagePattern(text)
			if err != nil {
				return Images{}, fmt.Errorf("%s: %.70q: %w", l.name, text, err)
			}
			*l.out = append(*l.out, p)
		}
	}
	return im, nil
}

func parseImagePattern(text string) (imagePattern, error) {
	if text == "" || len(text) > maxImagePattern {
		return imagePattern{}, fmt.Errorf("want 1 to %d characters", maxImagePattern)
	}
	if digestForm(text) {
		return imagePattern{digest: text}, nil
	}
	repo, digest, at := strings.Cut(text, "@")
	if at && !digestForm(digest) {
		return imagePattern{}, fmt.Errorf("after @ comes a digest, sha256: and 64 hexadecimal digits")
	}
	if _, err := path.Match(repo, ""); err != nil || strings.ContainsAny(repo, " \t\n") || repo == "" {
		return imagePattern{}, fmt.Errorf("is not a pattern of repositories, such as docker.io/library/*")
	}
	if repository(repo) != fullRepository(repo) {
		return imagePattern{}, fmt.Errorf("has a tag; images run by digest, so write the repository or the digest")
	}
	return imagePattern{fullRepository(repo), digest}, nil
}

func digestForm(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

// fullRepository adds the registry and library that Docker implies: "alpine" is docker.io/library/alpine.
func fullRepository(name string) string {
	first, _, slash := strings.Cut(name, "/")
	switch {
	case slash && (strings.ContainsAny(first, ".:*") || first == "localhost"), !slash && strings.HasPrefix(name, "*"):
		return name
	case slash:
		return "docker.io/" + name
	}
	return "docker.io/library/" + name
}

// repository is the full repository of an image reference, without tag.
func repository(ref string) string {
	if colon := strings.LastIndexByte(ref, ':'); colon > strings.LastIndexByte(ref, '/') {
		ref = ref[:colon]
	}
	return fullRepository(ref)
}

func (p imagePattern) matches(repo, digest string) bool {
	if p.digest != "" && p.digest != digest {
		return false
	}
	if p.repository == "" || p.repository == "**" {
		return true
	}
	pattern, deep := strings.CutSuffix(p.repository, "/**")
	if !deep {
		ok, err := path.Match(pattern, repo)
		return err == nil && ok
	}
	// The fixed part matches as many levels as it has; anything may follow.
	parts := strings.Split(repo, "/")
	n := strings.Count(pattern, "/") + 1
	if len(parts) <= n {
		return false
	}
	ok, err := path.Match(pattern, strings.Join(parts[:n], "/"))
	return err == nil && ok
}

// Check refuses an image that may not run here, with market.ReasonImage.
func (im Images) Check(ref string) error {
	name, digest, _ := strings.Cut(ref, "@")
	repo := repository(name)
	matches := func(p imagePattern) bool { return p.matches(repo, digest) }
	switch {
	case slices.ContainsFunc(im.deny, matches):
		return market.Refuse(market.ReasonImage, "this provider does not run image %.200s", ref)
	case len(im.allow) > 0 && !slices.ContainsFunc(im.allow, matches):
		return market.Refuse(market.ReasonImage, "image %.200s is not among those this provider runs", ref)
	}
	return nil
}

// serves refuses buyers that the operator does not want. It says to all of them the same.
func (pol *Policy) serves(buyer sign.Key) *market.Refusal {
	_, blocked := pol.Block[buyer]
	if blocked || pol.Blocked != nil && pol.Blocked(buyer) || len(pol.Only) > 0 && !slices.Contains(pol.Only, buyer) {
		return market.Refuse(market.ReasonBlocked, "this provider does not serve you")
	}
	return nil
}

// admits says whether something new may be sold to the order's buyer now.
func (p *Provider) admits(ctx context.Context, o market.Order, now time.Time) *market.Refusal {
	if refusal := p.cfg.Policy.serves(o.Peer()); refusal != nil {
		return refusal
	}
	if least := p.cfg.Policy.MinReputation; least > 0 {
		if s := p.cfg.Reputation.Scores(reputation.Buyer, o.Peer())[0]; s.Millionths < least {
			return market.Refuse(market.ReasonReputation, "your reputation as a buyer is %.4f here, at least %.4f is asked", float64(s.Millionths)/1e6, float64(least)/1e6)
		}
	}
	if p.paused() {
		return market.Refuse(market.ReasonPaused, "this provider sells nothing new for now")
	}
	if err := p.cfg.Policy.Hours.Covers(now, now.Add(p.lasts(o.Slots))); err != nil {
		return market.Refuse(market.ReasonClosed, "%v", err)
	}
	if prober, ok := p.cfg.Runtimes[o.Runtime].(runtime.Prober); ok && !p.probes.ready(ctx, o.Runtime, prober, now, p.cfg.Log) {
		return market.Refuse(market.ReasonRuntime, "%s", noEngine)
	}
	return nil
}

const (
	// noEngine is what a buyer is told of a container engine that does not answer; its operator is told more.
	noEngine = "this provider's container engine does not answer"
	// probeEvery is how long an answer of a runtime's engine counts, probeWait how long one is waited for.
	probeEvery = time.Second
	probeWait  = 2 * time.Second
)

// probes remember which runtimes could start something: a provider must not be paid for what it knows that it cannot do.
type probes struct {
	mu    sync.Mutex
	known map[string]probed // by runtime
}

type probed struct {
	at    time.Time
	ready bool
}

// ready asks the runtime's engine, at most once in a while.
func (p *probes) ready(ctx context.Context, name string, r runtime.Prober, now time.Time, log *slog.Logger) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, asked := p.known[name]
	if asked && now.Sub(last.at) < probeEvery {
		return last.ready
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeWait)
	defer cancel()
	err := r.Probe(ctx)
	if p.known == nil {
		p.known = map[string]probed{}
	}
	p.known[name] = probed{now, err == nil}
	switch {
	case err != nil && (last.ready || !asked):
		log.Warn("nothing can be started; orders are refused until that changes", "runtime", name, "err", err)
	case err == nil && asked && !last.ready:
		log.Info("programs can be started again", "runtime", name)
	}
	return err == nil
}

// lasts is how long so many slots take, at their nominal length.
func (p *Provider) lasts(slots uint64) time.Duration {
	const century = 100 * 365 * 24 * time.Hour // and no more: it must fit a Duration
	return time.Duration(min(slots*p.cfg.Genesis.SlotMillis, uint64(century/time.Millisecond))) * time.Millisecond
}
