package docker

import (
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
)

const goarch = goruntime.GOARCH

func TestConformance(t *testing.T) {
	t.Parallel()
	needEngine(t)
	probe := newRuntime(t, shared, nil)
	ref := pulled(t, probe, "plain", nil)
	runtimetest.Run(t, func(t *testing.T) runtimetest.Subject {
		r := newRuntime(t, shared, nil)
		peer := r.cfg.Peer
		return runtimetest.Subject{
			Runtime: r,
			Restart: func(t *testing.T) runtime.Runtime {
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				r = newRuntime(t, shared, func(c *Config) { c.Peer = peer })
				return r
			},
			Program: ref, Images: true, Command: "/guest", Secrets: true, DiskKills: true,
			Bad: map[string]string{
				"not pulled": "127.0.0.1:1/none@sha256:" + strings.Repeat("0", 64),
			},
		}
	})
}
