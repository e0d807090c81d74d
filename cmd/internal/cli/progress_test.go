package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
)

func jobOf(id string) buyer.Job { return buyer.Job{ID: id} }

func TestPrefixed(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &prefixed{w: &out, prefix: "[3] "}
	for _, piece := range []string{"one", " line\ntwo\n\nth", "ree"} {
		if n, err := p.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "[3] one line\n[3] two\n[3] \n[3] three\n"; out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
	out.Reset()
	if _, err := p.Write(bytes.Repeat([]byte("x"), 3*maxPrefixed)); err != nil {
		t.Fatal(err)
	}
	if len(p.buf) >= maxPrefixed {
		t.Errorf("%d bytes of a line without an end are kept", len(p.buf))
	}
}

func TestShortest(t *testing.T) {
	t.Parallel()
	got := shortest([]buyer.Job{jobOf("jaaaaaaaaaaa1"), jobOf("jaaaaaaaaaaa2"), jobOf("jbbbbbbbbbbbb"), jobOf("jc")})
	for id, want := range map[string]string{"jaaaaaaaaaaa1": "jaaaaaaaaaaa1", "jaaaaaaaaaaa2": "jaaaaaaaaaaa2", "jbbbbbbbbbbbb": "jbbbbbbb", "jc": "jc"} {
		if got[id] != want {
			t.Errorf("%s is shortened to %q, want %q", id, got[id], want)
		}
	}
}

// What a provider calls its output decides nothing about where it is written.
func TestOutputDir(t *testing.T) {
	t.Parallel()
	j := buyer.Job{Spec: job.Job{Outputs: []job.Output{{Path: "/out"}, {Path: "/data/out"}}}}
	for path, want := range map[string]string{"/out": "dir/out", "/data/out": "dir/data/out", "/etc": "", "../out": "", "/out/../../x": "", "": ""} {
		got, err := outputDir(j, "dir", path)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q goes to %q, %v, want %q", path, got, err, want)
		}
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{-time.Second: "0s", 90 * time.Second: "90s", 5 * time.Minute: "5m", 5 * time.Hour: "5h", 72 * time.Hour: "3d"} {
		if got := span(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	if got := clip(strings.Repeat("ä", 10), 4); got != "äää…" {
		t.Errorf("%q", got)
	}
}
