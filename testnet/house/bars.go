package house

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
)

// Bar is a limit on one kind of figure.
type Bar struct {
	Name  string
	Limit int
	Least bool // Limit is a minimum; without it, a maximum
	Step  int  // excess is listed in multiples of Step, so that small changes do not touch the list
	Why   string
}

// Bars are all limits. The figures are those of production code unless Why says otherwise.
var Bars = []Bar{
	{"package-lines", 2500, false, 100, "a package that cannot be read in an afternoon holds more than one idea"},
	{"package-files", 18, false, 1, "a folder must be learnt at one look"},
	{"type-methods", 30, false, 1, "a type with more methods is several types that share their fields"},
	{"type-files", 6, false, 1, "the methods of a type must be found together"},
	{"file-lines", 400, false, 20, "a long file hides its outline"},
	{"function-lines", 80, false, 10, "a function must fit on one screen"},
	{"wide-lines", 0, false, 10, "lines over 120 columns cannot be compared side by side; tabs count four"},
	{"interface-methods", 6, false, 1, "an interface names one need; an optional ability is a second interface"},
	{"fan-out", 15, false, 1, "a package that imports more of ours is the root of a program, or several packages"},
	{"import-depth", 12, false, 1, "a change at the bottom of a deep tree is rebuilt and understood layer by layer"},
	{"struct-mutexes", 1, false, 1, "two mutexes in a struct need an order of locking that no compiler checks"},
	{"config-functions", 3, false, 1, "functions in a Config hide where a call goes; rooms meet in interfaces"},
	{"store-calls",
		0, false, 1, "records are read and written through node/journal, which has one encoding and one error text"},
	{"test-percent", 50, true, 5, "a package over 500 lines has half as many lines of tests beside it"},
	{"pure-test-percent",
		100, true, 5, "a core over 500 lines has as many lines of tests beside it: it needs no network to test"},
	{"undocumented", 0, false, 1, "an exported name without a comment is a promise without a text"},
	{"word-what", 15, false, 5, "per 10,000 words: a clause with `what` stands where a noun is missing"},
	{"word-who", 5, false, 2, "per 10,000 words: roles have names: buyer, provider, caller"},
	{"word-tell", 2, false, 1, "per 10,000 words: programs notify, report, request, publish and return"},
	{"word-nobody", 3, false, 1, "per 10,000 words: roles have names, and `no peer`, `no caller` are exact"},
	{"word-says", 5, false, 1, "per 10,000 words: fields contain, errors state, peers receive; programs do not hear"},
	{"word-one-that", 4, false, 1, "per 10,000 words: repeat the noun: `leases that ended`, not `those that ended`"},
	{"word-so-many", 2, false, 1, "per 10,000 words: `n`, `that many`, `the same number`: name the quantity"},
	{"word-any-more", 1, false, 1, "per 10,000 words: `no longer`, `at most`, `nevertheless`, or nothing"},
	{"says-whether", 0, false, 1, "predicates have the doc comment `reports whether`, in tests too"},
	{"walk-files", 45, false, 1, "a reader who follows one order must not open half the tree"},
}

// Exception is a limit of its own for one subject, with its reason. There are at most MaxExceptions.
type Exception struct {
	Bar, Subject string
	Limit        int
	Why          string
}

// MaxExceptions bounds the list of exceptions.
const MaxExceptions = 12

// Exceptions is sorted by bar.
var Exceptions = []Exception{
	{"package-lines", "node/buyer/jobs", 3300, "one pure machine: all rules share the fields of its state"},
	{"fan-out", "node", 35, "the composing root imports every room once"},
	{"fan-out", "node/buyer", 30, "the root of buying composes its rooms, and those of each job"},
	{"fan-out", "node/provider", 30, "the root of selling composes its rooms, and those of each lease"},
	{"fan-out", "testnet/harness", 29, "it makes whole peers from all their rooms, with faults between them"},
	{"import-depth", "cmd/internal/cli/clitest", 13, "it starts a whole peer, which is twelve layers deep"},
	{"import-depth", "cmd/internal/cli/peercmd", 13, "it starts a whole peer, which is twelve layers deep"},
	{"import-depth", "cmd/internal/cli/rooms", 14, "it lists the commands, one of which starts a whole peer"},
	{"import-depth", "cmd/starling", 15, "the program has the list of commands"},
	{"import-depth", "testnet/harness", 13, "it makes whole peers, which are twelve layers deep"},
	{"test-percent", "node/runtime/docker/probe", 0, "it is the program that tests run in containers"},
	{"walk-files", "order", 75, "rooms are small and meet in interfaces, so few stops share a file"},
}

// Figure is the value of one subject under one bar: 13,614 lines of package node/buyer.
type Figure struct {
	Bar, Subject string
	Value        int
}

// Measure returns the figures of the files that miss their bar, each rounded away from it to the bar's step, sorted by
// bar and subject.
func Measure(files []File) []Figure {
	var found []Figure
	for _, measure := range []func([]File) []Figure{
		sizes, methods, declarations, imports, storeCalls, testShare, words, documentation,
	} {
		found = append(found, measure(files)...)
	}
	return excess(found)
}

// excess returns the figures that miss their bar, rounded and sorted.
func excess(found []Figure) []Figure {
	missed := found[:0]
	for _, f := range found {
		bar, limit := barOf(f)
		if bar.worse(f.Value, limit) {
			f.Value = bar.round(f.Value)
			missed = append(missed, f)
		}
	}
	sortFigures(missed)
	return missed
}

// barOf returns the bar of a figure and the limit that holds for its subject.
func barOf(f Figure) (Bar, int) {
	i := slices.IndexFunc(Bars, func(b Bar) bool { return b.Name == f.Bar })
	limit := Bars[i].Limit
	for _, e := range Exceptions {
		if e.Bar == f.Bar && e.Subject == f.Subject {
			limit = e.Limit
		}
	}
	return Bars[i], limit
}

// worse reports whether a is further on the wrong side than b.
func (b Bar) worse(a, than int) bool {
	if b.Least {
		return a < than
	}
	return a > than
}

func (b Bar) round(v int) int {
	if b.Least {
		return v / b.Step * b.Step
	}
	return (v + b.Step - 1) / b.Step * b.Step
}

func sortFigures(figures []Figure) {
	order := func(name string) int { return slices.IndexFunc(Bars, func(b Bar) bool { return b.Name == name }) }
	slices.SortFunc(figures, func(a, b Figure) int {
		return cmp.Or(order(a.Bar)-order(b.Bar), cmp.Compare(a.Subject, b.Subject))
	})
}

// Compare checks the excess of the tree against the committed list. It returns one sentence for each figure that is new
// or worse, one for each that is better than its entry, and the list with the better values.
func Compare(listed, excess []Figure) (worse, better []string, next []Figure) {
	type key struct{ bar, subject string }
	allowed := map[key]int{}
	for _, f := range listed {
		allowed[key{f.Bar, f.Subject}] = f.Value
	}
	for _, f := range excess {
		bar, limit := barOf(f)
		was, known := allowed[key{f.Bar, f.Subject}]
		delete(allowed, key{f.Bar, f.Subject})
		switch {
		case !known:
			worse = append(worse, fmt.Sprintf("%s: %s: got %d, want %d: %s", f.Subject, f.Bar, f.Value, limit, bar.Why))
			continue
		case bar.worse(f.Value, was):
			worse = append(worse, fmt.Sprintf("%s: %s: got %d, want %d as listed, and %d in the end: %s",
				f.Subject, f.Bar, f.Value, was, limit, bar.Why))
			f.Value = was
		case f.Value != was:
			better = append(better, fmt.Sprintf("%s: %s: got %d, listed %d", f.Subject, f.Bar, f.Value, was))
		}
		next = append(next, f)
	}
	for _, f := range listed {
		if _, left := allowed[key{f.Bar, f.Subject}]; left {
			better = append(better, fmt.Sprintf("%s: %s: within the bar or gone, listed %d", f.Subject, f.Bar, f.Value))
		}
	}
	sortFigures(next)
	return worse, better, next
}

// FormatList writes figures as the lines of testdata/excess.txt: bar, subject, value.
func FormatList(figures []Figure) []byte {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, f := range figures {
		fmt.Fprintf(w, "%s\t%s\t%d\n", f.Bar, f.Subject, f.Value)
	}
	w.Flush() // a bytes.Buffer takes every write
	return out.Bytes()
}

// ParseList reads the lines of FormatList. An unknown bar is an error.
func ParseList(text []byte) ([]Figure, error) {
	var figures []Figure
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		var f Figure
		if _, err := fmt.Sscan(lines.Text(), &f.Bar, &f.Subject, &f.Value); err != nil {
			return nil, fmt.Errorf("line %d: %w: got %q, want bar, subject and value", n, err, lines.Text())
		}
		if !slices.ContainsFunc(Bars, func(b Bar) bool { return b.Name == f.Bar }) {
			return nil, fmt.Errorf("line %d: unknown bar %q", n, f.Bar)
		}
		figures = append(figures, f)
	}
	return figures, lines.Err()
}

// production reports whether a file counts as production code.
func production(f File) bool {
	return !f.Test && !strings.HasSuffix(f.Path, ".pb.go") && !f.Generated()
}

// folderOf returns the folder of the top level that a file lies in.
func folderOf(f File) string {
	top, _, _ := strings.Cut(f.Path, "/")
	return path.Clean(top)
}
