package selection

import (
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
)

// The rank with the largest input decides.
func TestBrought(t *testing.T) {
	t.Parallel()
	spec := job.Job{
		Module: "m", Count: 2, Inputs: []job.Input{{Source: "in/{rank}", Path: "/in"}},
		Blobs: map[string]job.Blob{"m": {Size: 10 << 10}, "in/0": {Size: 1 << 10}, "in/1": {Size: 190 << 10}},
	}
	if got := Brought(spec); got != 200<<10 {
		t.Errorf("the larger rank needs %d bytes", got)
	}
	spec.Blobs["in/1"] = job.Blob{Size: 190 << 10, URLs: []string{"https://example.org/1"}}
	if got := Brought(spec); got != 11<<10 {
		t.Errorf("the larger rank needs %d bytes, with an input by URL", got)
	}
}

// Nobody can be near enough for an engine that does not live on such a network, nor for a class that is not met.
func TestUnlivable(t *testing.T) {
	t.Parallel()
	metro := &job.Cluster{Engine: "mpi", Network: cluster.Metro}
	if text := Unlivable(metro, 80*time.Millisecond); !strings.HasPrefix(text, "engine mpi cannot live on a wan network") {
		t.Errorf("got %q", text)
	}
	lan := &job.Cluster{Engine: "ray", Network: cluster.LAN}
	if text := Unlivable(lan, 20*time.Millisecond); !strings.HasPrefix(text, "want a lan, under ") {
		t.Errorf("got %q", text)
	}
	if text := Unlivable(metro, time.Millisecond); text != "" {
		t.Errorf("got %q for members that are near", text)
	}
}
