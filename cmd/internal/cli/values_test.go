package cli

import (
	"strings"
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{-time.Second: "0s", 90 * time.Second: "90s", 5 * time.Minute: "5m", 5 * time.Hour: "5h", 72 * time.Hour: "3d"} {
		if got := Span(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	if got := Clip(strings.Repeat("ä", 10), 4); got != "äää…" {
		t.Errorf("%q", got)
	}
}
