// Command idl writes the program's interface for wallets, explorers and generators of clients:
// chain/program/starling.json, a Codama tree (https://github.com/codama-idl/codama) with one node a line.
//
//	go run ./chain/program/idl          writes it
//	go run ./chain/program/idl -check   fails if the committed file differs
//
// The call itself gives its accounts, their permissions, and its number. The Go source gives names and sentences,
// tables.go the layouts. The client's tests compare the layouts with testdata/vectors.json.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"unicode"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

const file = "starling.json"

func main() {
	check := flag.Bool("check", false, "compare with the existing file")
	dir := flag.String("dir", filepath.Join("chain", "program"), "folder of package program")
	flag.Parse()
	if err := run(*dir, *check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir string, check bool) error {
	b, err := tree(dir)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, file)
	if !check {
		return os.WriteFile(path, b, 0o644)
	}
	there, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Equal(there, b) {
		return fmt.Errorf("%s is stale: run make idl", path)
	}
	return nil
}

// tree is the file's text.
func tree(dir string) ([]byte, error) {
	s, err := read(dir)
	if err != nil {
		return nil, err
	}
	var instructions, keeps, defined, derives, refusals []node
	for _, c := range calls {
		n, err := s.call(c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		instructions = append(instructions, n)
	}
	for _, a := range accounts {
		keeps = append(keeps, s.account(a))
	}
	for _, t := range types {
		defined = append(defined, node{"kind": "definedTypeNode", "name": t.name, "type": t.of})
	}
	for _, p := range pdas {
		derives = append(derives, p.node())
	}
	for _, e := range s.errors {
		refusals = append(refusals, node{"kind": "errorNode", "name": lower(e.name), "code": uint32(e.code),
			"message": e.code.Error()})
	}
	var out bytes.Buffer
	fmt.Fprint(&out,
		`{"kind": "rootNode", "standard": "codama", "version": "1.0.0", "additionalPrograms": [], "program": {`+"\n")
	fmt.Fprintf(&out, `"kind": "programNode", "name": "starling", "version": "1.0.0", "publicKey": %q,`+"\n",
		svm.SystemProgram)
	fmt.Fprint(&out, `"docs": ["The address is a network's own: its genesis names it, and every call takes it."]`)
	for _, part := range []struct {
		name string
		of   []node
	}{{"accounts", keeps}, {"instructions", instructions}, {"definedTypes", defined}, {"pdas", derives},
		{"errors", refusals}} {
		fmt.Fprintf(&out, ",\n%q: [", part.name)
		for i, n := range part.of {
			line, err := json.Marshal(n)
			if err != nil {
				return nil, err
			}
			if i > 0 {
				out.WriteByte(',')
			}
			out.WriteByte('\n')
			out.Write(line)
		}
		out.WriteString("]")
	}
	out.WriteString("}}\n")
	return out.Bytes(), nil
}

// source is the comments of the Go source of the program and its accounts.
type source struct {
	docs   map[string]string            // of types
	fields map[string]map[string]string // comments of their fields
	errors []struct {
		name string
		code program.Code
	}
}

func read(dir string) (source, error) {
	s := source{docs: map[string]string{}, fields: map[string]map[string]string{}}
	for _, of := range []string{dir, filepath.Join(dir, "account")} {
		if err := s.readFolder(of); err != nil {
			return s, err
		}
	}
	sort.Slice(s.errors, func(i, j int) bool { return s.errors[i].code < s.errors[j].code })
	return s, nil
}

func (s *source) readFolder(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(paths) == 0 {
		return errors.Join(fmt.Errorf("%s has no Go source", dir), err)
	}
	sort.Strings(paths)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				s.read(g)
			}
		}
	}
	return nil
}

func (s *source) read(g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			doc := g.Doc
			if spec.Doc != nil {
				doc = spec.Doc
			}
			s.docs[spec.Name.Name] = sentence(doc)
			if st, ok := spec.Type.(*ast.StructType); ok {
				s.fields[spec.Name.Name] = map[string]string{}
				for _, f := range st.Fields.List {
					for _, name := range f.Names {
						s.fields[spec.Name.Name][name.Name] = sentence(f.Comment)
					}
				}
			}
		case *ast.ValueSpec:
			if t, ok := spec.Type.(*ast.Ident); ok && t.Name == "Code" && g.Tok == token.CONST &&
				len(spec.Values) == 1 {
				if n, err := strconv.ParseUint(spec.Values[0].(*ast.BasicLit).Value, 10, 32); err == nil {
					s.errors = append(s.errors, struct {
						name string
						code program.Code
					}{strings.TrimPrefix(spec.Names[0].Name, "Err"), program.Code(n)})
				}
			}
		}
	}
}

func sentence(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	return strings.Join(strings.Fields(c.Text()), " ")
}

// say adds the source's comment.
func (n node) say(text string) node {
	if text != "" {
		n["docs"] = []string{text}
	}
	return n
}

func lower(s string) string {
	return string(unicode.ToLower(rune(s[0]))) + s[1:]
}

func (s source) account(a stored) node {
	raw := a.sample.Marshal()
	name := reflect.TypeOf(a.sample).Name()
	discriminators := []node{constant(int(raw[0]), 0), constant(int(raw[1]), 1)}
	if a.sub != 0 {
		discriminators = append(discriminators, constant(a.sub, 3))
	}
	fields := append([]field{always("kind", int(raw[0])), always("version", int(raw[1]))}, a.fields...)
	n := node{"kind": "accountNode", "name": a.name, "data": structure(fields...),
		"pda": node{"kind": "pdaLinkNode", "name": a.pda}, "discriminators": discriminators}
	return n.say(s.docs[name])
}

func (p pda) node() node {
	seeds := []node{{"kind": "constantPdaSeedNode", "type": node{"kind": "stringTypeNode", "encoding": "utf8"},
		"value": node{"kind": "stringValueNode", "string": p.word}}}
	for _, f := range p.seeds {
		seeds = append(seeds, node{"kind": "variablePdaSeedNode", "name": f.name, "type": f.of})
	}
	return node{"kind": "pdaNode", "name": p.name, "seeds": seeds}
}

// at is the address that samples are made for.
var at = sign.NewPrivate(sign.Sum([]byte("idl"))).Key()

// keyFields are the paths of all keys in a call that are no list's.
func keyFields(t reflect.Type, path []int) (out [][]int) {
	for i := range t.NumField() {
		f, p := t.Field(i), append(append([]int{}, path...), i)
		switch {
		case f.Type == reflect.TypeFor[sign.Key]():
			out = append(out, p)
		case f.Type.Kind() == reflect.Struct && f.IsExported():
			out = append(out, keyFields(f.Type, p)...)
		}
	}
	return out
}

// call finds a call's accounts from its encoding of a sample in which all keys differ.
func (s source) call(c call) (node, error) {
	t := reflect.TypeOf(c.sample)
	v := reflect.New(t).Elem()
	v.Set(reflect.ValueOf(c.sample))
	names, fields := map[sign.Key]string{}, keyFields(t, nil)
	for i, path := range fields {
		k := sign.Sum([]byte{byte(i)})
		v.FieldByIndex(path).Set(reflect.ValueOf(sign.Key(k)))
		names[sign.Key(k)] = t.FieldByIndex(path).Name
	}
	in := v.Interface().(program.Call).Instruction(at)
	var list []node
	for i, m := range in.Accounts {
		n := node{"kind": "instructionAccountNode", "isSigner": m.Signer, "isWritable": m.Writable}
		name := names[m.Key]
		switch {
		case name != "":
			n["name"] = lower(name)
			n.say(s.fields[t.Name()][name])
			for _, path := range fields {
				if t.FieldByIndex(path).Name != name {
					continue
				}
				none := reflect.New(t).Elem()
				none.Set(v)
				none.FieldByIndex(path).SetZero()
				switch without := none.Interface().(program.Call).Instruction(at).Accounts; {
				case i >= len(without): // it may follow the others
					c.more, c.signs = lower(name), m.Signer
				case without[i].Key == at:
					n["isOptional"] = true
				}
			}
		case m.Key == at:
			n["name"], n["isOptional"] = "none", true
		default:
			for _, p := range programs {
				if p.key == m.Key {
					n["name"], n["defaultValue"] = p.name, address(p.key.String())
				}
			}
			if n["name"] == nil {
				return nil, fmt.Errorf("account %d has no name", i)
			}
		}
		if n["name"] != c.more {
			list = append(list, n)
		}
	}
	data := append([]field{always("discriminator", int(in.Data[0]))}, c.data...)
	discriminators, offset := []node{constant(int(in.Data[0]), 0)}, 1
	arguments := []node{}
	for i, f := range data {
		arguments = append(arguments, f.node("instructionArgumentNode"))
		if i > 0 && f.value != nil { // a second number of the call: at the end of data of a known length, 1 or 8 bytes
			discriminators = append(discriminators, constant(f.value["number"].(int), offset))
		}
		if i > 0 && f.of["format"] == "u64" {
			offset += 8
		}
	}
	n := node{"kind": "instructionNode", "name": c.name, "optionalAccountStrategy": "programId", "accounts": list,
		"arguments": arguments, "discriminators": discriminators}
	if c.more != "" {
		n["remainingAccounts"] = []node{{"kind": "instructionRemainingAccountsNode", "isOptional": true,
			"isSigner": c.signs, "isWritable": false, "value": node{"kind": "argumentValueNode", "name": c.more}}}
	}
	return n.say(s.docs[t.Name()]), nil
}
