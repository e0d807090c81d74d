package provider_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
)

// shelving is a runtime with images.
type shelving struct {
	*runtimetest.Fake
	mu   sync.Mutex
	kept []runtime.ShelvedImage
	err  error
}

func (s *shelving) Shelved(context.Context) ([]runtime.ShelvedImage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept), s.err
}

func (*shelving) Unshelve(context.Context, string) error { return runtime.ErrNoImage }

func (s *shelving) keep(err error, kept ...runtime.ShelvedImage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept, s.err = kept, err
}

// kept is an image with a digest that begins with a number, used so many minutes ago.
func kept(n byte, ago int, open bool) runtime.ShelvedImage {
	digest := hex.EncodeToString([]byte{n}) + strings.Repeat("f", 62)
	return runtime.ShelvedImage{ID: fmt.Sprint(n, open), Digest: "sha256:" + digest, Open: open,
		Used: time.Now().Add(-time.Duration(ago) * time.Minute)}
}

func prefix(n byte) images.Prefix {
	return images.Prefix{n, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
}

// TestAttackWarmNames: a stranger who watches offers learns nothing of an image that needed credentials or was pushed:
// neither its name, nor by another offer that something came or went. Of the others the offers name a bounded number.
func TestAttackWarmNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s := newBench(t), &shelving{Fake: runtimetest.NewFake("docker", nil)}
		b.stop()
		b.config.Runtimes = map[string]runtime.Runtime{"docker": s}
		private := []runtime.ShelvedImage{kept(200, 0, false), kept(201, 1, false)}
		s.keep(nil, private...)
		b.start()
		time.Sleep(2 * time.Minute)
		before := b.public()[0]
		if len(before.Ready) > 0 {
			t.Fatalf("private images are named: %v", before.Ready)
		}
		s.keep(nil, kept(202, 0, false))
		time.Sleep(2 * time.Minute)
		if o := b.public()[0]; o.Seq != before.Seq {
			t.Error("another private image made another offer")
		}
		all := append(private, kept(1, 5, true), kept(9, 3, true))
		s.keep(nil, all...)
		time.Sleep(2 * time.Minute)
		first := b.public()[0]
		if !slices.Equal(first.Ready, images.Ready{prefix(1), prefix(9)}) {
			t.Errorf("named are %v", first.Ready)
		}
		for n := range byte(40) { // what buyers run now makes no offers
			all = append(all, kept(100+n, int(n), true))
		}
		s.keep(nil, all...)
		time.Sleep(2 * time.Minute)
		if o := b.public()[0]; o.Seq != first.Seq {
			t.Error("other images made another offer")
		}
		time.Sleep(10 * time.Minute)
		last := b.public()[0]
		if len(last.Ready) != images.MaxReady || !last.Ready.Has(prefix(100)) || last.Ready.Has(prefix(139)) {
			t.Errorf("of 42 images %v are named", last.Ready)
		}
		for _, i := range private {
			if last.Ready.Has(images.PrefixOf("@" + i.Digest)) {
				t.Errorf("%s is named", i.Digest)
			}
		}
		s.keep(errors.New("the engine is away"))
		time.Sleep(12 * time.Minute)
		if o := b.public()[0]; len(o.Ready) > 0 {
			t.Errorf("without an engine %v are named", o.Ready)
		}
	})
}
