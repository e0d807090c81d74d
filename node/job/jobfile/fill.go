package jobfile

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"
	yamltoken "github.com/goccy/go-yaml/token"

	"github.com/starling-network/starling/node/job"
)

var (
	onlyParameter = regexp.MustCompile(`^\$\{([^{}$]*)\}$`)
	parameterMark = regexp.MustCompile(`\$?\$\{([^{}$]*)\}?`)
	wholeNumber   = regexp.MustCompile(`^[0-9]+$`)
)

// fill inserts the values of parameters into the values below n, and returns the node in its place.
func (t *templateReader) fill(n ast.Node, field string) ast.Node {
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, e := range n.Values {
			t.fill(e, field)
		}
	case *ast.MappingValueNode:
		if key, ok := n.Key.(*ast.StringNode); ok {
			if field == "" && (key.Value == "parameters" || key.Value == "smoke") {
				return n
			}
			if field != "" {
				field += "."
			}
			field += job.Printable(key.Value)
		}
		n.Value = t.fill(n.Value, field)
	case *ast.SequenceNode:
		for i := range n.Values {
			n.Values[i] = t.fill(n.Values[i], fmt.Sprintf("%s[%d]", field, i))
		}
	case *ast.StringNode:
		return t.fillText(n, field)
	}
	return n
}

// fillText inserts values into one text. A text that is one parameter becomes its value as if written in its place.
func (t *templateReader) fillText(n *ast.StringNode, field string) ast.Node {
	if m := onlyParameter.FindStringSubmatch(n.Value); m != nil {
		p := t.use(n, field, m[1])
		if p == nil {
			return n
		}
		value := t.value(p)
		at := yamltoken.String(value, value, n.GetToken().Position)
		var filled ast.Node = ast.String(at)
		if wholeNumber.MatchString(value) {
			filled = ast.Integer(yamltoken.New(value, value, n.GetToken().Position))
		}
		t.whole[filled] = p.Name
		return filled
	}
	n.Value = parameterMark.ReplaceAllStringFunc(n.Value, func(mark string) string {
		if rest, escaped := strings.CutPrefix(mark, "$$"); escaped {
			return "$" + rest
		}
		name, closed := strings.CutSuffix(strings.TrimPrefix(mark, "${"), "}")
		if !closed {
			t.wrong(n, field, "%.40q has no closing brace; write $${ for the text ${", mark)
			return mark
		}
		p := t.use(n, field, name)
		if p == nil {
			return mark
		}
		return t.value(p)
	})
	return n
}

// use returns the parameter of a mark in a text.
func (t *templateReader) use(n ast.Node, field, name string) *Parameter {
	p := t.find(name)
	if p == nil {
		t.wrong(n, field, "no parameter is called %.40q; write $${ for the text ${", name)
		return nil
	}
	t.used[name] = true
	return p
}

// usersOwn are the fields that a template must not have, with the flags for them: they read from the user's machine,
// commit the user's money, or choose providers.
var usersOwn = map[string]string{
	"spec.secrets": "--secret or --secret-env", "spec.registryAuth": "--registry-auth", "spec.webhooks": "--webhook",
	"spec.payment": "--max-price and --budget", "spec.guardians": "--guardians", "spec.standbys": "--standbys",
	"spec.placement.regions": "--region", "spec.placement.exclude": "--exclude",
	"spec.resources.unproven": "--unproven", "spec.probes": "--probes",
	"spec.rounds.reduce": "a job file, as the reduce program runs on the user's peer",
}

// rules reports the fields of the user.
func (t *templateReader) rules(f *file) {
	for field, flag := range usersOwn {
		if n := f.where[field]; n != nil {
			t.wrong(n, field, "not in a template: the user gives %s", flag)
		}
	}
}

// sources checks the sources of the job, and places the template's own files.
func (t *templateReader) sources(f *file, place func(string) string) {
	one := func(field string, source *string) {
		if n := f.where[field]; n != nil {
			t.source(n, field, source, place)
		}
	}
	j := &f.job
	one("spec.module", &j.Module)
	for i := range j.Inputs {
		one(fmt.Sprintf("spec.inputs[%d].src", i), &j.Inputs[i].Source)
	}
}

// source checks one source. The user's value of an input parameter may be any source. Others are files of the template
// and public content that the template names by its digest: a file elsewhere, s3:// and hf:// are read with the user's
// rights, and cid: names content of the user's peer.
func (t *templateReader) source(n ast.Node, field string, source *string, place func(string) string) {
	if p := t.find(t.whole[n]); p != nil && p.Input {
		if _, given := t.values[p.Name]; given {
			return
		}
	}
	text := *source
	_, named := job.Named(text)
	switch {
	case strings.HasPrefix(text, job.CIDScheme), job.IsHub(text), job.IsS3(text):
		t.wrong(n, field, "not in a template: the user's keys open it; write a parameter with input: true")
	case job.IsIPFS(text), job.IsURL(text) && named:
	case job.IsURL(text):
		t.wrong(n, field, "missing sha256: a template names content by its digest")
	case !fs.ValidPath(text) || text == "." || strings.ContainsAny(text, `\:`):
		t.wrong(n, field, "%.80q is not a file of the template: want a path below it, or a parameter with "+
			"input: true that the user sets", text)
	default:
		t.out.Files = append(t.out.Files, text)
		*source = place(text)
	}
}
