package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestHours(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time {
		berlin, _ := time.LoadLocation("Europe/Berlin")
		v, err := time.ParseInLocation("2006-01-02 15:04", text, berlin)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct {
		rules  []string
		at     string // 2025-01-06 is a Monday
		open   bool
		change string
	}{
		{nil, "2025-01-06 12:00", true, ""},
		{[]string{"daily"}, "2025-01-06 12:00", true, ""},
		{[]string{"Mon-Fri 18:00-08:00"}, "2025-01-06 12:00", false, "2025-01-06 18:00"},
		{[]string{"Mon-Fri 18:00-08:00"}, "2025-01-06 07:59", false, "2025-01-06 18:00"}, // Sunday's night is not open
		{[]string{"Mon-Fri 18:00-08:00"}, "2025-01-06 18:00", true, "2025-01-07 08:00"},
		{[]string{"Mon-Fri 18:00-08:00"}, "2025-01-07 08:00", false, "2025-01-07 18:00"},
		{[]string{"Mon-Fri 18:00-08:00"}, "2025-01-11 07:00", true, "2025-01-11 08:00"},
		{[]string{"Mon-Fri 18:00-08:00", "Sat,Sun"}, "2025-01-11 07:00", true, "2025-01-13 00:00"},
		{[]string{"Fri 18:00-24:00", "Sat,Sun"}, "2025-01-10 19:00", true, "2025-01-13 00:00"},
		{[]string{"Sat-Mon 10:00-11:00"}, "2025-01-07 10:30", false, "2025-01-11 10:00"},
		{[]string{"Sat 22:00-06:00"}, "2025-03-30 04:00", true, "2025-03-30 06:00"},
		{[]string{"Sat 22:00-06:00"}, "2025-10-26 04:00", true, "2025-10-26 06:00"},
	} {
		h, err := ParseHours(c.rules, "Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		open, change := h.At(at(c.at))
		if want := c.change; open != c.open || want == "" != change.IsZero() || want != "" && !change.Equal(at(want)) {
			t.Errorf("%v at %s: %v until %v, want %v until %s", c.rules, c.at, open, change, c.open, c.change)
		}
	}
	// An hour that the clock leaves out in spring neither stays open for good nor closes for good.
	h, _ := ParseHours([]string{"Sun 02:00-03:00"}, "Europe/Berlin")
	if _, change := h.At(at("2025-03-30 01:59")); !change.After(at("2025-03-30 01:59")) || change.After(at("2025-04-06 02:00")) {
		t.Error(change)
	}
	h, _ = ParseHours([]string{"Mon-Fri 18:00-08:00"}, "Europe/Berlin")
	for _, c := range []struct{ from, to, err string }{
		{"2025-01-06 19:00", "2025-01-07 08:00", ""},
		{"2025-01-06 19:00", "2025-01-07 08:01", "the lease would run until Tue 08:01 CET, past the end of the hours at Tue 08:00 CET"},
		{"2025-01-06 12:00", "2025-01-06 12:01", "closed until Mon 18:00 CET; open are Mon-Fri 18:00-08:00 (Europe/Berlin)"},
	} {
		err := h.Covers(at(c.from), at(c.to))
		if c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
			t.Errorf("%s to %s: %v", c.from, c.to, err)
		}
	}
}

func TestBadHours(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		"":                      "names no days",
		"mon":                   "names no days",
		"Mon-":                  "names no days",
		"Mon,Mon":               "Mon is named twice",
		"Mon-Sun,Tue":           "Tue is named twice",
		"Mon 8:00-9:00":         "is no time of day",
		"Mon 08:00":             "is not from-to",
		"Mon 08:60-09:00":       "is no time of day",
		"Mon 24:01-09:00":       "is no time of day",
		"Mon 24:00-09:00":       "begins nothing",
		"Mon 08:00-08:00":       "empty interval",
		"Mon  08:00-09:00":      "is no time of day",
		"Mon 08:00-09:00 ":      "is no time of day",
		"Mon " + rep("0", 80):   "at most 64",
		"Mon 08:00-09:00-10:00": "is no time of day",
	} {
		if _, err := ParseHours([]string{rule}, "UTC"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", rule, err, want)
		}
	}
	if _, err := ParseHours(nil, "Mars/Olympus"); err == nil || !strings.Contains(err.Error(), "Europe/Berlin") {
		t.Error(err)
	}
	if _, err := ParseHours(slices.Repeat([]string{"Mon"}, 33), "UTC"); err == nil {
		t.Error("33 rules pass")
	}
}

func rep(s string, n int) string { return strings.Repeat(s, n) }

// TestHoursProperties: a moment is open exactly when a rule says so of its minute of the week, and At's change is the next
// moment at which that differs.
func TestHoursProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var rules []string
		var week [7 * dayMinutes]bool
		for range rapid.IntRange(1, 4).Draw(t, "rules") {
			day := rapid.IntRange(0, 6).Draw(t, "day")
			from := rapid.IntRange(0, dayMinutes-1).Draw(t, "from")
			to := rapid.IntRange(0, dayMinutes).Filter(func(v int) bool { return v != from }).Draw(t, "to")
			rules = append(rules, weekdays[day]+" "+clockText(from)+"-"+clockText(to))
			if to < from {
				to += dayMinutes
			}
			for m := from; m < to; m++ {
				week[(day*dayMinutes+m)%len(week)] = true
			}
		}
		h, err := ParseHours(rules, "UTC")
		if err != nil {
			t.Fatal(err)
		}
		sunday := time.Date(2025, 1, 5, 0, 0, 0, 0, time.UTC)
		minute := rapid.IntRange(0, len(week)-1).Draw(t, "minute")
		open, change := h.At(sunday.Add(time.Duration(minute) * time.Minute))
		if open != week[minute] {
			t.Fatalf("%v in minute %d: open is %v", rules, minute, open)
		}
		next := 1
		for next < len(week) && week[(minute+next)%len(week)] == open {
			next++
		}
		if want := sunday.Add(time.Duration(minute+next) * time.Minute); next < len(week) && !change.Equal(want) {
			t.Fatalf("%v in minute %d: changes at %v, want %v", rules, minute, change, want)
		}
	})
}

func clockText(m int) string {
	return string([]byte{'0' + byte(m/600), '0' + byte(m/60%10), ':', '0' + byte(m%60/10), '0' + byte(m%10)})
}

func FuzzHours(f *testing.F) {
	for _, rule := range []string{"Mon-Fri 18:00-08:00", "Sat,Sun", "daily 22:00-24:00", "Fri-Mon,Wed 00:00-00:01", "Mon 1:00"} {
		f.Add(rule, int64(1_700_000_000))
	}
	f.Fuzz(func(t *testing.T, rule string, unix int64) {
		h, err := ParseHours([]string{rule}, "Europe/Berlin")
		if err != nil {
			return
		}
		if again, err := ParseHours(h.rules, h.zone.String()); err != nil || !slices.Equal(again.spans, h.spans) {
			t.Fatalf("%q reads back as %v, %v", rule, again, err)
		}
		now := time.Unix(unix%(1<<35), 0)
		open, change := h.At(now)
		if !change.IsZero() && !change.After(now) {
			t.Fatalf("%q: open is %v and changes in the past: %v at %v", rule, open, change, now)
		}
	})
}
