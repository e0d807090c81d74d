package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // a machine without a zone database still has the operator's zone
)

// Hours are the times of the week in which a provider sells. The zero Hours are always open.
type Hours struct {
	rules []string
	spans []span // by day; none means always
	zone  *time.Location
}

// span is open time that begins on a day of the week, in minutes of wall-clock time after that day's midnight.
type span struct {
	day      time.Weekday
	from, to int // to > from; over dayMinutes it ends on the next day
}

const (
	dayMinutes = 24 * 60
	maxRules   = 32
	maxRule    = 64
	// horizon is the number of days that hours are searched ahead; if open for all of them, they are always open.
	horizon = 9
)

var weekdays = []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

// ParseHours parses rules such as "Mon-Fri 18:00-08:00", "Sat,Sun" and "daily 22:00-24:00". A rule has the days on
// which open time begins, and its times; if it ends before it begins, it ends on the next day. Without rules it is
// always open. zone is the name of a time zone; "" is the machine's.
func ParseHours(rules []string, zone string) (Hours, error) {
	h := Hours{rules: slices.Clone(rules), zone: time.Local}
	if zone != "" {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			return Hours{}, fmt.Errorf("time zone %.64q: not known; give one such as Europe/Berlin or UTC", zone)
		}
		h.zone = loc
	}
	if len(rules) > maxRules {
		return Hours{}, fmt.Errorf("%d rules, at most %d", len(rules), maxRules)
	}
	for _, rule := range rules {
		spans, err := parseRule(rule)
		if err != nil {
			return Hours{}, fmt.Errorf("%.70q: %w", rule, err)
		}
		h.spans = append(h.spans, spans...)
	}
	return h, nil
}

func parseRule(rule string) ([]span, error) {
	if len(rule) > maxRule {
		return nil, fmt.Errorf("%d characters, at most %d", len(rule), maxRule)
	}
	daysText, times, timed := strings.Cut(rule, " ")
	days, err := parseDays(daysText)
	if err != nil {
		return nil, err
	}
	from, to := 0, dayMinutes
	if timed {
		begin, end, ok := strings.Cut(times, "-")
		if !ok {
			return nil, fmt.Errorf("%q is not from-to, as in 18:00-08:00", times)
		}
		if from, err = parseClock(begin); err != nil {
			return nil, err
		}
		if to, err = parseClock(end); err != nil {
			return nil, err
		}
		if from == dayMinutes {
			return nil, fmt.Errorf("24:00 begins nothing; write 00:00 of the next day")
		}
		if to == from {
			return nil, fmt.Errorf("%s: empty interval; omit the times for the whole day", times)
		}
		if to < from {
			to += dayMinutes
		}
	}
	var out []span
	for _, d := range days {
		out = append(out, span{d, from, to})
	}
	return out, nil
}

// parseDays reads "daily", "Mon", "Mon-Fri", "Sat,Sun" and lists of those.
func parseDays(text string) ([]time.Weekday, error) {
	if text == "daily" {
		return []time.Weekday{0, 1, 2, 3, 4, 5, 6}, nil
	}
	var out []time.Weekday
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		a, b := slices.Index(weekdays, first), slices.Index(weekdays, last)
		if a < 0 || b < 0 {
			return nil, fmt.Errorf("%q names no days; write Mon, Mon-Fri, Sat,Sun or daily", text)
		}
		for d := a; ; d = (d + 1) % 7 {
			if slices.Contains(out, time.Weekday(d)) {
				return nil, fmt.Errorf("%s is named twice", weekdays[d])
			}
			out = append(out, time.Weekday(d))
			if d == b {
				break
			}
		}
	}
	return out, nil
}

// parseClock reads 00:00 to 24:00 into minutes.
func parseClock(text string) (int, error) {
	bad := fmt.Errorf("%q is no time of day; write 00:00 to 24:00", text)
	if len(text) != 5 || text[2] != ':' {
		return 0, bad
	}
	for _, i := range []int{0, 1, 3, 4} {
		if text[i] < '0' || text[i] > '9' {
			return 0, bad
		}
	}
	h, m := int(text[0]-'0')*10+int(text[1]-'0'), int(text[3]-'0')*10+int(text[4]-'0')
	if m > 59 || h*60+m > dayMinutes {
		return 0, bad
	}
	return h*60 + m, nil
}

// String lists the rules: "Mon-Fri 18:00-08:00; Sat,Sun (Europe/Berlin)", or "always".
func (h Hours) String() string {
	if len(h.spans) == 0 {
		return "always"
	}
	return fmt.Sprintf("%s (%s)", strings.Join(h.rules, "; "), h.zone)
}

// At reports whether t is open. change is when that changes, the zero time if never.
func (h Hours) At(t time.Time) (open bool, change time.Time) {
	if len(h.spans) == 0 {
		return true, time.Time{}
	}
	local := t.In(h.zone)
	y, m, d := local.Date()
	var around [][2]time.Time
	for day := -2; day <= horizon; day++ {
		midnight := time.Date(y, m, d+day, 12, 0, 0, 0, h.zone) // noon: there is one on every day
		for _, s := range h.spans {
			if s.day != midnight.Weekday() {
				continue
			}
			from, to := time.Date(y, m, d+day, 0, s.from, 0, 0, h.zone), time.Date(y, m, d+day, 0, s.to, 0, 0, h.zone)
			if to.After(from) { // not so where the clock goes forward
				around = append(around, [2]time.Time{from, to})
			}
		}
	}
	slices.SortFunc(around, func(a, b [2]time.Time) int { return cmp.Or(a[0].Compare(b[0]), a[1].Compare(b[1])) })
	var end time.Time
	for _, s := range around {
		switch {
		case !s[1].After(t): // over
		case end.IsZero() && s[0].After(t):
			return false, s[0]
		case end.IsZero() || !s[0].After(end):
			if s[1].After(end) {
				end = s[1]
			}
		default:
			return true, end
		}
	}
	if end.Sub(t) > (horizon-2)*24*time.Hour {
		return true, time.Time{}
	}
	return true, end
}

// Covers reports whether all of from to to is open, and when not, why.
func (h Hours) Covers(from, to time.Time) error {
	open, change := h.At(from)
	clock := func(t time.Time) string { return t.In(h.zone).Format("Mon 15:04 MST") }
	switch {
	case !open:
		return fmt.Errorf("closed until %s; open are %s", clock(change), h)
	case !change.IsZero() && to.After(change):
		return fmt.Errorf("the lease would run until %s, past the end of the hours at %s", clock(to), clock(change))
	}
	return nil
}
