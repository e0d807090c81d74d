package jobfile

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/starling-network/starling/node/job"
)

// Limits of the parameters of a template.
const (
	MaxParameters = 32
	maxValue      = 4096 // bytes of a value
	maxAbout      = 200  // bytes of a description
)

// Template is the part of a template's job file that describes it.
type Template struct {
	Kind       string
	Parameters []Parameter // in the order of the file
	Smoke      Smoke
	// Files are the paths of the job's own files, relative to the template. One with {rank} stands for several.
	Files []string
}

// Parameter is a named text that the job file contains as ${NAME}.
type Parameter struct {
	Name  string
	About string // one line
	// Default is the value if the user sets none. It has no meaning if Required is true.
	Default  string
	Required bool
	// Input means that the value may be the source of an input: a path or a URL of the user's choice.
	Input bool
}

// Smoke is a short run that shows that the template works.
type Smoke struct {
	Set    map[string]string // values of parameters
	Args   []string          // instead of the job's arguments; none: the job's own
	Prints string            // a part of the standard output
	// Needs are conditions beside a container engine or the WASM runtime; see the constants.
	Needs []string
}

// The needs of a smoke run.
const (
	NeedsGPU      = "gpu"
	NeedsInternet = "internet"
)

var parameterName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// ReadTemplate reads a job file with parameters, and fills in values. A template's job file is a job file with two
// more fields; ${NAME} stands in its values, not in its keys and blocks of text (| and >):
//
//	parameters:
//	  image: {default: "acme/ffmpeg:7", about: image with ffmpeg}
//	  video: {about: file or URL of the video, input: true}       # no default: required
//	smoke: {set: {video: test.mp4}, args: [-version], prints: ffmpeg, needs: [gpu, internet]}
//
// A value is inserted into one scalar value after the file was parsed, so it cannot change the structure. $${ stands
// for the text ${. A template must not read files and variables of the user, choose prices, nor narrow the choice of
// providers: see Draft. place returns the path at which a file of the template lies for this run. Errors are as in
// Parse, those of values have the name of the flag, --set.
func ReadTemplate(data []byte, values map[string]string, place func(file string) string) (Template, *Draft, error) {
	t, body, err := openTemplate(data, values)
	if err != nil {
		return Template{}, nil, err
	}
	t.checkValues()
	if err := t.problems.err(); err != nil {
		return Template{}, nil, err
	}
	t.fill(body, "")
	for _, p := range t.out.Parameters {
		if !t.used[p.Name] {
			t.wrong(t.where["parameters."+p.Name], "parameters."+p.Name, "not used: want ${%s} in spec", p.Name)
		}
	}
	f := &file{reader: reader{where: map[string]ast.Node{}}, template: true}
	f.read(body)
	t.rules(f)
	t.sources(f, place)
	if err := append(t.problems, f.problems...).err(); err != nil {
		return Template{}, nil, err
	}
	slices.Sort(t.out.Files)
	t.out.Files = slices.Compact(t.out.Files)
	return t.out, &Draft{f}, nil
}

// DescribeTemplate reads the parameters and the smoke run of a template, and neither its job nor Files.
func DescribeTemplate(data []byte) (Template, error) {
	t, _, err := openTemplate(data, nil)
	if err != nil {
		return Template{}, err
	}
	return t.out, nil
}

// openTemplate reads the fields that a job file lacks.
func openTemplate(data []byte, values map[string]string) (*templateReader, ast.Node, error) {
	body, err := parseYAML(data)
	if err != nil {
		return nil, nil, err
	}
	t := &templateReader{reader: reader{where: map[string]ast.Node{}}, values: values,
		used: map[string]bool{}, whole: map[ast.Node]string{}}
	if t.plain(body, "") {
		t.head(body)
	}
	return t, body, t.problems.err()
}

// templateReader reads the parameters of a template and inserts their values.
type templateReader struct {
	reader
	out    Template
	values map[string]string
	used   map[string]bool
	whole  map[ast.Node]string // values that are one parameter, by its name
}

// head reads parameters and smoke, and the kind.
func (t *templateReader) head(body ast.Node) {
	t.mapping(body, "", func(key string, _, value ast.Node, field string) {
		switch key {
		case "parameters":
			t.parameters(value, field)
		case "smoke":
			t.smoke(value, field)
		case "kind":
			t.out.Kind, _ = t.text(value, field)
		}
	})
	for _, name := range slices.Sorted(maps.Keys(t.out.Smoke.Set)) {
		if t.find(name) == nil {
			field := "smoke.set." + job.Printable(name)
			t.wrong(t.where[field], field, "no such parameter")
		}
	}
	if t.where["smoke"] == nil {
		t.wrong(body, "smoke", "missing: a short run, and its output")
	} else if t.out.Smoke.Prints == "" {
		t.wrong(t.where["smoke"], "smoke.prints", "missing: a part of the output")
	}
}

func (t *templateReader) parameters(n ast.Node, path string) {
	t.mapping(n, path, func(name string, key, value ast.Node, field string) {
		p := Parameter{Name: name, Required: true}
		switch {
		case !parameterName.MatchString(name):
			t.wrong(key, field, "not a parameter's name: want 1 to 32 of a-z, 0-9 and '-', beginning with a letter")
			return
		case len(t.out.Parameters) == MaxParameters:
			t.wrong(key, field, "more than %d parameters", MaxParameters)
			return
		}
		t.fields(value, field, fields{
			"about": func(n ast.Node, field string) { p.About = t.line(n, field, maxAbout) },
			"default": func(n ast.Node, field string) {
				p.Default, p.Required = t.line(n, field, maxValue), false
			},
			"input": func(n ast.Node, field string) {
				text, _ := t.text(n, field)
				v, err := parseTruth(text)
				if err != nil {
					t.wrong(n, field, "%v", err)
				}
				p.Input = v
			},
		}, nil)
		if p.About == "" {
			t.wrong(key, field+".about", "missing: a line for the user")
		}
		t.out.Parameters = append(t.out.Parameters, p)
	})
}

func (t *templateReader) smoke(n ast.Node, path string) {
	s := &t.out.Smoke
	lines := func(to *[]string) func(ast.Node, string) {
		return func(n ast.Node, field string) {
			t.list(n, field, func(n ast.Node, field string) {
				if text, ok := t.text(n, field); ok {
					*to = append(*to, text)
				}
			})
		}
	}
	t.fields(n, path, fields{
		"set": func(n ast.Node, field string) {
			s.Set = map[string]string{}
			t.mapping(n, field, func(key string, _, value ast.Node, field string) {
				s.Set[key] = t.line(value, field, maxValue)
			})
		},
		"args":   lines(&s.Args),
		"prints": func(n ast.Node, field string) { s.Prints = t.line(n, field, maxAbout) },
		"needs":  lines(&s.Needs),
	}, nil)
	for _, need := range s.Needs {
		if need != NeedsGPU && need != NeedsInternet {
			t.wrong(t.where[path+".needs"], path+".needs", "%.40q, want %s or %s", need, NeedsGPU, NeedsInternet)
		}
	}
}

// line reads a value that is one line of text.
func (t *templateReader) line(n ast.Node, field string, most int) string {
	text, ok := t.text(n, field)
	if ok && !isLine(text, most) {
		t.wrong(n, field, "want one line of at most %d bytes", most)
	}
	return text
}

func isLine(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func (t *templateReader) find(name string) *Parameter {
	i := slices.IndexFunc(t.out.Parameters, func(p Parameter) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &t.out.Parameters[i]
}

// checkValues checks the user's values.
func (t *templateReader) checkValues() {
	known := map[string]bool{}
	for _, p := range t.out.Parameters {
		known[p.Name] = true
		if _, given := t.values[p.Name]; p.Required && !given {
			t.problems.add("--set", "%s is required: %s", p.Name, p.About)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.values)) {
		switch {
		case known[name]:
			if !isLine(t.values[name], maxValue) {
				t.problems.add("--set", "%s: want one line of at most %d bytes", name, maxValue)
			}
		case nearest(name, known) != "":
			t.problems.add("--set", "%.40q: no such parameter, did you mean %s?", name, nearest(name, known))
		default:
			t.problems.add("--set", "%.40q: no such parameter: want %s", name,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
}

// value returns the value of a parameter.
func (t *templateReader) value(p *Parameter) string {
	if v, given := t.values[p.Name]; given {
		return v
	}
	return p.Default
}
