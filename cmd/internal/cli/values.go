package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
)

// Amount reads whole tokens into base units.
func Amount(flag, text string, g market.Genesis) (market.Amount, error) {
	n, err := market.ParseDecimal(text, g.Decimals)
	if err != nil {
		return 0, Usagef("%s: %.40q is not an amount such as 2.5 of at most %d decimals", flag, text, g.Decimals)
	}
	return market.Amount(n), nil
}

// Count is a number with its noun: "1 rank", "3 ranks".
func Count(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// Clip shortens text for a table.
func Clip(text string, most int) string {
	r := []rune(text)
	if len(r) <= most {
		return text
	}
	return string(r[:most-1]) + "…"
}

// Ago is how long something is past, as a person says it: "12s", "5m", "3h", "4d".
func Ago(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return Span(now.Sub(then))
}

// Span is a duration in its largest unit.
func Span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Millis is a round-trip time in a table.
func Millis(ms float64) string {
	switch {
	case ms <= 0:
		return "-"
	case ms < 10:
		return fmt.Sprintf("%.1fms", ms)
	}
	return fmt.Sprintf("%.0fms", ms)
}

// FindOne finds the element with an id, or with a unique beginning of it.
func FindOne[T any](all []T, id string, of func(T) string) (found T, err error) {
	n := 0
	for _, v := range all {
		if id != "" && strings.HasPrefix(of(v), id) {
			found, n = v, n+1
		}
	}
	switch n {
	case 0:
		return found, Usagef("there is no %q here", Clip(id, 40))
	case 1:
		return found, nil
	}
	return found, Usagef("%q is the beginning of several", Clip(id, 40))
}

// Address reads one of the command line.
func Address(what, text string) (sign.Key, error) {
	k, err := sign.ParseKey(text)
	if err != nil {
		return k, Usagef("%s: %q is not a Solana address", what, Clip(text, 60))
	}
	return k, nil
}

// ReadFile reads a file of at most so many bytes.
func ReadFile(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > most {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", path, info.Size(), most)
	}
	return os.ReadFile(path)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// LimitText is an amount that may be no limit at all.
func LimitText(g market.Genesis, n market.Amount) string {
	if n == 0 {
		return "-"
	}
	return g.FormatAmount(n)
}

// Took is how long something took; "" for no time.
func Took(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// AllRanks stands for every rank of a job.
const AllRanks = -1

// CheckRank refuses a rank that the job does not have.
func CheckRank(j record.Job, rank int) error {
	if rank < 0 || rank >= len(j.Ranks) {
		return Usagef("--rank: job %s has ranks 0 to %d, not %d", j.ID, len(j.Ranks)-1, rank)
	}
	return nil
}
