package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseAge parses a duration: 90s, 36h, 7d.
func ParseAge(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%.40q, want a duration such as 90s, 36h or 7d", text)
	}
	return d, nil
}

// ParseSince parses a flag's value: a duration before now, a UTC day or a time.
func ParseSince(flag, text string, now time.Time) (time.Time, error) {
	if d, err := ParseAge(text); err == nil {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, Usagef("%s: %.40q, "+
		"want 90s, 36h, 7d, a day such as 2006-01-02 or a time such as 2006-01-02T15:04:05Z", flag, text)
}
