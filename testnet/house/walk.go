package house

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"strings"
)

// Stop is a function that an order passes on its way from the command line to the payout.
type Stop struct {
	File, Function string // Function is a name, or Type.Method
}

// ParseWalk reads one stop per line: file and function. A line that begins with # is the heading of a phase.
func ParseWalk(text []byte) ([]Stop, error) {
	var stops []Stop
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		words := strings.Fields(lines.Text())
		if len(words) != 2 {
			return nil, fmt.Errorf("line %d: got %q, want file and function", n, lines.Text())
		}
		stops = append(stops, Stop{words[0], words[1]})
	}
	return stops, lines.Err()
}

// CheckWalk returns one sentence for each stop without a declaration in the files, and for each repeated stop.
func CheckWalk(stops []Stop, files []File) []string {
	known, declared := map[string]bool{}, map[Stop]bool{}
	for _, f := range files {
		known[f.Path] = production(f)
		for _, d := range f.AST.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := fn.Name.Name
			if of := receiverOf(fn); of != "" {
				name = of + "." + name
			}
			declared[Stop{f.Path, name}] = true
		}
	}
	var breaches []string
	for i, s := range stops {
		switch {
		case !known[s.File]:
			breaches = append(breaches, fmt.Sprintf("%s: no such file of production code", s.File))
		case !declared[s]:
			breaches = append(breaches, fmt.Sprintf("%s: %s is not declared here", s.File, s.Function))
		case i > 0 && stops[i-1] == s:
			breaches = append(breaches, fmt.Sprintf("%s: %s is listed twice in a row", s.File, s.Function))
		}
	}
	return breaches
}

// MeasureWalk returns the number of files with stops, if it misses its bar.
func MeasureWalk(stops []Stop) []Figure {
	files := map[string]bool{}
	for _, s := range stops {
		files[s.File] = true
	}
	f := Figure{"walk-files", "order", len(files)}
	if bar, limit := barOf(f); !bar.worse(f.Value, limit) {
		return nil
	}
	return []Figure{f}
}
