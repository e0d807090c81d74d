package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
)

// Amount parses whole tokens into base units.
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

// Dash returns text for a table, in which nothing is a dash.
func Dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Bytes formats a number of bytes: "1.5 MiB".
func Bytes(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// Clip shortens text for a table.
func Clip(text string, most int) string {
	r := []rune(text)
	if len(r) <= most {
		return text
	}
	return string(r[:most-1]) + "…"
}

// Ago formats the time since then in its largest unit: "12s", "5m", "3h", "4d".
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

// Millis formats a round-trip time for a table.
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
		return found, Usagef("%q: not found", Clip(id, 40))
	case 1:
		return found, nil
	}
	return found, Usagef("%q is the beginning of several ids", Clip(id, 40))
}

// Address parses an address of the command line.
func Address(what, text string) (sign.Key, error) {
	k, err := sign.ParseKey(text)
	if err != nil {
		return k, Usagef("%s: %q is not a Solana address", what, Clip(text, 60))
	}
	return k, nil
}

// ReadFile reads a file. It returns an error if the file is larger than most bytes.
func ReadFile(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > most {
		return nil, fmt.Errorf("%s: too large: got %d bytes, want at most %d", path, info.Size(), most)
	}
	return os.ReadFile(path)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// LimitText formats an amount, or the absence of a limit.
func LimitText(g market.Genesis, n market.Amount) string {
	if n == 0 {
		return "-"
	}
	return g.FormatAmount(n)
}

// Took formats a duration; "" for zero.
func Took(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// Save writes a file that is not there. It returns fs.ErrExist if one is. After an error nothing of it is left.
func Save(r io.Reader, path string, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// AllRanks selects every rank of a job.
const AllRanks = -1

// CheckRank returns an error if the job does not have the rank.
func CheckRank(j record.Job, rank int) error {
	if rank < 0 || rank >= len(j.Ranks) {
		return Usagef("--rank: job %s has ranks 0 to %d, not %d", j.ID, len(j.Ranks)-1, rank)
	}
	return nil
}

// CopiesOf returns the copies of a job's outputs without their key, or nil for a job without.
func CopiesOf(ctx context.Context, p Peer, j record.Job) (*record.ShownCopies, error) {
	if _, over := j.Result(); !over || j.Spec.Copies == nil {
		return nil, nil
	}
	s, err := api.JobCopies.Call(ctx, p, api.ByID{ID: j.ID})
	s.Key = ""
	return &s, err
}

// CopyRows shows the copies of a job's outputs, which may be nil.
func CopyRows(row func(name, value string), s *record.ShownCopies) {
	if s == nil {
		return
	}
	text := fmt.Sprintf("%d of %d", s.Kept(), s.Wanted)
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	row("copies", text)
	for _, c := range s.Copies {
		text := c.Provider.Short() + " " + string(c.State)
		if c.Provider.IsZero() {
			text = string(c.State)
		}
		if c.State == record.CopyKept {
			text += ", paid until " + c.Until.Local().Format(time.DateTime)
		}
		if c.Reason != "" {
			text += ": " + c.Reason
		}
		row("", text)
	}
}

// RestoreOutputs has the peer fetch outputs that it no longer has from the providers with copies of them.
func RestoreOutputs(ctx context.Context, c *api.Client, j record.Job) error {
	if _, over := j.Result(); !over || j.Spec.Copies == nil {
		return nil
	}
	_, err := api.RestoreJob.Call(ctx, c, api.ByID{ID: j.ID})
	if answer, ok := errors.AsType[*api.Error](err); ok && answer.Code == api.CodeNoCopies {
		return nil // the outputs that are here are all there is
	}
	return err
}
