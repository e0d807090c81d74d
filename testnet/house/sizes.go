package house

import (
	"bytes"
	"go/ast"
	"maps"
	"slices"
	"unicode/utf8"
)

// MaxColumns is the width of a line, with four columns for a tab.
const MaxColumns = 120

// counts adds up the values of a bar's subjects.
type counts map[string]int

// figures returns the counts under a bar, in the order of their subjects.
func (c counts) figures(bar string) []Figure {
	var out []Figure
	for _, subject := range slices.Sorted(maps.Keys(c)) {
		out = append(out, Figure{bar, subject, c[subject]})
	}
	return out
}

func (c counts) max(subject string, value int) { c[subject] = max(c[subject], value) }

// sizes measures packages, files, functions and lines.
func sizes(files []File) []Figure {
	lines, number, wide := counts{}, counts{}, counts{}
	long, functions := counts{}, counts{}
	for _, f := range files {
		if !production(f) {
			continue
		}
		n := bytes.Count(f.Text, []byte("\n"))
		lines[f.Dir] += n
		number[f.Dir]++
		long[f.Path] = n
		for line := range bytes.Lines(f.Text) {
			if columns(line) > MaxColumns {
				wide[f.Dir]++
			}
		}
		for _, d := range f.AST.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				from, to := f.Set.Position(fn.Pos()).Line, f.Set.Position(fn.End()).Line
				functions.max(f.Dir+"."+functionName(fn), to-from+1)
			}
		}
	}
	return slices.Concat(lines.figures("package-lines"), number.figures("package-files"), long.figures("file-lines"),
		wide.figures("wide-lines"), functions.figures("function-lines"))
}

func columns(line []byte) int {
	line = bytes.TrimRight(line, "\r\n")
	return utf8.RuneCount(line) + 3*bytes.Count(line, []byte("\t"))
}

// functionName is the function's name, with its receiver's type: "Offer.Encode".
func functionName(fn *ast.FuncDecl) string {
	if receiver := receiverOf(fn); receiver != "" {
		return receiver + "." + fn.Name.Name
	}
	return fn.Name.Name
}

// receiverOf returns the name of a method's type without pointer and type parameters, or "" of a function.
func receiverOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	t := fn.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// methods measures types: their methods, and the number of files with these. A method with a variant for each platform
// counts once.
func methods(files []File) []Figure {
	names, places := map[string]map[string]bool{}, map[string]map[string]bool{}
	for _, f := range files {
		if !production(f) {
			continue
		}
		for _, d := range f.AST.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || receiverOf(fn) == "" {
				continue
			}
			subject := f.Dir + "." + receiverOf(fn)
			if names[subject] == nil {
				names[subject], places[subject] = map[string]bool{}, map[string]bool{}
			}
			names[subject][fn.Name.Name] = true
			places[subject][f.Path] = true
		}
	}
	number, spread := counts{}, counts{}
	for subject := range names {
		number[subject], spread[subject] = len(names[subject]), len(places[subject])
	}
	return append(number.figures("type-methods"), spread.figures("type-files")...)
}

// testShare measures the lines of tests beside the code of each package, in percent.
func testShare(files []File) []Figure {
	const small = 500
	code, tests, pure := counts{}, counts{}, map[string]bool{}
	for _, f := range files {
		n := bytes.Count(f.Text, []byte("\n"))
		switch {
		case f.Test:
			tests[f.Dir] += n
		case production(f):
			code[f.Dir] += n
			pure[f.Dir] = Pure(f)
		}
	}
	var out []Figure
	for _, dir := range slices.Sorted(maps.Keys(code)) {
		if code[dir] <= small || support(dir) {
			continue
		}
		bar := "test-percent"
		if pure[dir] {
			bar = "pure-test-percent"
		}
		out = append(out, Figure{bar, dir, 100 * tests[dir] / code[dir]})
	}
	return out
}
