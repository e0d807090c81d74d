package cli

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseAge(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"7d": 7 * 24 * time.Hour, "0d": 0, "65535d": 65535 * 24 * time.Hour, "36h": 36 * time.Hour, "1h30m": 90 * time.Minute,
	} {
		if got, err := ParseAge(text); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "-7d", "-1h", "1.5d", "65536d", "9999999h", "week", "7", "2006-01-02"} {
		if got, err := ParseAge(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

// A length of time is one before now, in hours of the clock or days of the calendar; a day is UTC's.
func TestParseSince(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"90s": now.Add(-90 * time.Second), "36h": now.Add(-36 * time.Hour), "1d": now.AddDate(0, 0, -1), "0s": now,
		"2026-02-28":                time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC),
		"2026-02-28T10:00:00+02:00": time.Date(2026, 2, 28, 8, 0, 0, 0, time.UTC),
		"65535d":                    now.AddDate(0, 0, -65535),
	} {
		if at, err := ParseSince("--since", text, now); err != nil || !at.Equal(want) {
			t.Errorf("%s: got %v, %v, want %v", text, at, err, want)
		}
	}
	for _, text := range []string{"-1h", "-1d", "65536d", "1.5d", "yesterday", "2026-02-30", "d", "7", strings.Repeat("9", 5000) + "d"} {
		if at, err := ParseSince("--since", text, now); Explain(err).Code != ExitUsage || len(err.Error()) > 200 {
			t.Errorf("%.20s: got %v, %.200v", text, at, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, 1<<62).Draw(t, "length"))
		if at, err := ParseSince("--since", d.String(), now); err != nil || !at.Equal(now.Add(-d)) {
			t.Fatalf("%v: got %v, %v", d, at, err)
		}
	})
}
