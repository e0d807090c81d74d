package jobfile

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	yamltoken "github.com/goccy/go-yaml/token"
	"github.com/starling-network/starling/node/job"
)

// MaxFile bounds a job file, maxDepth its nesting (the YAML parser takes quadratic time over it).
const (
	MaxFile  = 64 << 10
	maxDepth = 64
)

// parseYAML reads a job file into its one document. Positions in errors are the file's.
func parseYAML(data []byte) (ast.Node, error) {
	if len(data) > MaxFile {
		text := fmt.Sprintf("%d bytes, at most %d are read", len(data), MaxFile)
		return nil, &job.Error{Problems: []job.Problem{{Text: text, Kind: job.ErrInvalid}}}
	}
	tokens := lexer.Tokenize(string(data))
	if tooDeep(tokens) {
		text := fmt.Sprintf("more than %d brackets are open at once, or dashes stand in one line", maxDepth)
		return nil, &job.Error{Problems: []job.Problem{{Text: text, Kind: job.ErrInvalid}}}
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, &job.Error{Problems: []job.Problem{notYAML(err)}}
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			second := problemAt(doc.Body, "", "a second document: a file holds one job")
			return nil, &job.Error{Problems: []job.Problem{second}}
		}
		body = doc.Body
	}
	if body == nil {
		return nil, &job.Error{Problems: []job.Problem{{Text: "the file is empty", Kind: job.ErrInvalid}}}
	}
	return body, nil
}

// tooDeep reports whether lists and mappings are nested deeper than the limit. It counts tokens: brackets in comments
// and quotes do not count.
func tooDeep(tokens yamltoken.Tokens) bool {
	open, dashes, line := 0, 0, 0
	for _, tk := range tokens {
		switch tk.Type {
		case yamltoken.SequenceStartType, yamltoken.MappingStartType:
			open++
		case yamltoken.SequenceEndType, yamltoken.MappingEndType:
			open = max(0, open-1)
		case yamltoken.SequenceEntryType, yamltoken.MappingKeyType:
			if tk.Position.Line != line {
				line, dashes = tk.Position.Line, 0
			}
			dashes++
		}
		if open > maxDepth || dashes > maxDepth {
			return true
		}
	}
	return false
}

// notYAML is the problem of a file that the parser refuses.
func notYAML(err error) job.Problem {
	at, ok := errors.AsType[yaml.Error](err)
	if !ok {
		return job.Problem{Text: "not YAML: " + err.Error(), Kind: job.ErrInvalid}
	}
	p := job.Problem{Text: "not YAML: " + at.GetMessage(), Kind: job.ErrInvalid}
	if tk := at.GetToken(); tk != nil && tk.Position != nil {
		p.Line, p.Column = tk.Position.Line, tk.Position.Column
	}
	return p
}

// reader walks a parsed file, remembers where each field stands, and collects the problems.
type reader struct {
	problems problems
	where    map[string]ast.Node
}

func problemAt(n ast.Node, field, format string, args ...any) job.Problem {
	line, column := position(n)
	text := fmt.Sprintf(format, args...)
	return job.Problem{Field: field, Line: line, Column: column, Text: text, Kind: job.ErrInvalid}
}

// position is where a node begins. A mapping's own token is its first colon, so its first key is taken.
func position(n ast.Node) (line, column int) {
	if n == nil {
		return 0, 0
	}
	switch m := n.(type) {
	case *ast.MappingNode:
		if !m.IsFlowStyle && len(m.Values) > 0 {
			n = m.Values[0].Key
		}
	case *ast.MappingValueNode:
		n = m.Key
	}
	if tk := n.GetToken(); tk != nil && tk.Position != nil {
		return tk.Position.Line, tk.Position.Column
	}
	return 0, 0
}

func (r *reader) wrong(n ast.Node, field, format string, args ...any) {
	r.problems = append(r.problems, problemAt(n, field, format, args...))
}

// fields reads a mapping of known fields. It reports reserved and unknown ones as problems. An absent value (`spec:`
// and nothing) reads as an empty mapping.
func (r *reader) fields(n ast.Node, path string, known map[string]func(n ast.Node, field string),
	later map[string]string) {
	r.mapping(n, path, func(key string, keyNode, value ast.Node, field string) {
		if read, ok := known[key]; ok {
			read(value, field)
			return
		}
		p := problemAt(keyNode, field, "unknown field")
		if what, ok := later[key]; ok {
			p.Text, p.Kind = notSupported(what), job.ErrNotSupported
		} else if why, ok := job.Never[key]; ok {
			p.Text = why
		} else if near := nearest(key, known); near != "" {
			p.Text += fmt.Sprintf(", did you mean %s?", near)
		}
		r.problems = append(r.problems, p)
	})
}

// mapping calls fn for every entry of a mapping with text keys.
func (r *reader) mapping(n ast.Node, path string, fn func(key string, keyNode, value ast.Node, field string)) {
	var entries []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.NullNode:
		return
	case *ast.MappingNode:
		entries = m.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{m}
	default:
		r.wrong(n, path, "want fields, found %s", describe(n))
		return
	}
	seen := map[string]bool{}
	for _, e := range entries {
		key, ok := e.Key.(*ast.StringNode)
		if !ok {
			if !r.scalarKey(e, path, seen, fn) {
				r.wrong(e.Key, path, "a field's name must be plain text, found %s", describe(e.Key))
			}
			continue
		}
		r.entry(key.Value, e, path, seen, fn)
	}
}

// scalarKey takes a key such as 8080 or true as the text it is written with.
func (r *reader) scalarKey(e *ast.MappingValueNode, path string, seen map[string]bool,
	fn func(string, ast.Node, ast.Node, string)) bool {
	switch e.Key.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		r.entry(e.Key.GetToken().Value, e, path, seen, fn)
		return true
	}
	return false
}

func (r *reader) entry(key string, e *ast.MappingValueNode, path string, seen map[string]bool,
	fn func(string, ast.Node, ast.Node, string)) {
	field := job.Printable(key)
	if path != "" {
		field = path + "." + field
	}
	if seen[key] {
		r.wrong(e.Key, field, "given twice")
		return
	}
	seen[key] = true
	if !r.plain(e.Value, field) {
		return
	}
	r.where[field] = e.Value
	fn(key, e.Key, e.Value, field)
}

// list calls fn for every item of a list.
func (r *reader) list(n ast.Node, field string, fn func(n ast.Node, field string)) {
	if _, absent := n.(*ast.NullNode); absent {
		return
	}
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		r.wrong(n, field, "want a list, found %s", describe(n))
		return
	}
	for i, item := range seq.Values {
		at := fmt.Sprintf("%s[%d]", field, i)
		if r.plain(item, at) {
			r.where[at] = item
			fn(item, at)
		}
	}
}

// plain refuses constructs by which a file means something else than it shows.
func (r *reader) plain(n ast.Node, field string) bool {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		r.wrong(n, field, "anchors and aliases are not read: write the value out")
		return false
	case *ast.TagNode, *ast.DirectiveNode:
		r.wrong(n, field, "tags are not read: write a plain value")
		return false
	}
	return true
}

// text reads one value as written: `5`, `0.10` and `true` are the text 5, 0.10 and true.
func (r *reader) text(n ast.Node, field string) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	r.wrong(n, field, "want one value, found %s", describe(n))
	return "", false
}

// number reads a whole number that is written as one.
func (r *reader) number(n ast.Node, field string) (uint32, bool) {
	if _, ok := n.(*ast.IntegerNode); !ok {
		r.wrong(n, field, "want a whole number, found %s", describe(n))
		return 0, false
	}
	v, err := parseCount(n.GetToken().Value)
	if err != nil {
		r.wrong(n, field, "%v", err)
		return 0, false
	}
	return v, true
}

// describe names the kind of a node, for a person.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "fields"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return fmt.Sprintf("the text %.40q", n.Value)
	case *ast.LiteralNode:
		return "a block of text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return fmt.Sprintf("%.40s", n.GetToken().Value)
	}
	return "something that is not plain YAML"
}

// nearest is the known field that the author of key most likely meant, "" if none is near.
func nearest[T any](key string, known map[string]T) string {
	if len(key) > 40 {
		return ""
	}
	best, bestDistance := "", 3
	for k := range known {
		d := distance(strings.ToLower(key), strings.ToLower(k))
		if d > 0 && strings.EqualFold(strings.TrimSuffix(k, "s"), strings.TrimSuffix(key, "s")) {
			d = 0 // singular for plural, or the other way round
		}
		if d < bestDistance || d == bestDistance && best != "" && k < best {
			best, bestDistance = k, d
		}
	}
	if bestDistance*2 > len(key) {
		return ""
	}
	return best
}

// distance is the Levenshtein distance of two short words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j+1]+1, row[j]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
