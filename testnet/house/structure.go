package house

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// support reports whether a package only serves tests: its name ends in test, or it is in testnet.
func support(dir string) bool { return strings.HasSuffix(dir, "test") || Within(dir, "testnet") }

// declarations measures interfaces and structs.
func declarations(files []File) []Figure {
	interfaces, mutexes, functions := counts{}, counts{}, counts{}
	for _, f := range files {
		if !production(f) {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			subject := f.Dir + "." + spec.Name.Name
			switch t := spec.Type.(type) {
			case *ast.InterfaceType:
				interfaces.max(subject, fieldsOf(t.Methods, isFunction))
			case *ast.StructType:
				mutexes.max(subject, fieldsOf(t.Fields, isMutex))
				if strings.HasSuffix(spec.Name.Name, "Config") {
					functions.max(subject, fieldsOf(t.Fields, isFunction))
				}
			}
			return true
		})
	}
	return slices.Concat(interfaces.figures("interface-methods"), mutexes.figures("struct-mutexes"),
		functions.figures("config-functions"))
}

// fieldsOf counts the fields of a given type. An embedded field counts as one.
func fieldsOf(list *ast.FieldList, wanted func(ast.Expr) bool) int {
	n := 0
	for _, field := range list.List {
		if wanted(field.Type) {
			n += max(1, len(field.Names))
		}
	}
	return n
}

func isFunction(t ast.Expr) bool {
	_, ok := t.(*ast.FuncType)
	return ok
}

func isMutex(t ast.Expr) bool {
	return isName(t, "sync", "Mutex") || isName(t, "sync", "RWMutex")
}

// isName reports whether t is pkg.name or a pointer to it.
func isName(t ast.Expr, pkg, name string) bool {
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	sel, ok := t.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// imports measures the graph of our packages: the number of imports of each, and the longest chain of imports below it.
func imports(files []File) []Figure {
	graph := map[string]map[string]bool{}
	for _, f := range files {
		if f.Test {
			continue
		}
		if graph[f.Dir] == nil {
			graph[f.Dir] = map[string]bool{}
		}
		f.Imports(func(p, _ string, _ token.Pos) {
			if ours, ok := strings.CutPrefix(p, Module+"/"); ok {
				graph[f.Dir][ours] = true
			}
		})
	}
	fanOut, depths := counts{}, counts{}
	for dir := range graph {
		fanOut[dir] = len(graph[dir])
		depth(graph, depths, dir)
	}
	return append(fanOut.figures("fan-out"), depths.figures("import-depth")...)
}

// depth returns the number of packages on the longest chain of imports that begins with dir. The compiler refuses
// cycles; the zero value in the table ends them here.
func depth(graph map[string]map[string]bool, known counts, dir string) int {
	if d, ok := known[dir]; ok {
		return d
	}
	known[dir] = 0
	below := 0
	for p := range graph[dir] {
		below = max(below, depth(graph, known, p))
	}
	known[dir] = below + 1
	return below + 1
}

// StoreFolders are the packages that may call the store: itself, and the journal on top of it.
var StoreFolders = []string{"node/store", "node/journal"}

// storeCalls counts the calls of store.Store's methods in each package. It recognizes a store by the names of the
// fields, variables and parameters that the package declares with this type.
func storeCalls(files []File) []Figure {
	names := map[string]map[string]bool{} // by folder
	for _, f := range files {
		if !production(f) {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok && isName(field.Type, "store", "Store") {
				for _, name := range field.Names {
					if names[f.Dir] == nil {
						names[f.Dir] = map[string]bool{}
					}
					names[f.Dir][name.Name] = true
				}
			}
			return true
		})
	}
	calls := counts{}
	for _, f := range files {
		if !production(f) || slices.ContainsFunc(StoreFolders, func(s string) bool { return Within(f.Dir, s) }) {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && callsStore(call, names[f.Dir]) {
				calls[f.Dir]++
			}
			return true
		})
	}
	return calls.figures("store-calls")
}

func callsStore(call *ast.CallExpr, names map[string]bool) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Get", "List", "Write"}, method.Sel.Name) {
		return false
	}
	switch x := method.X.(type) {
	case *ast.Ident:
		return names[x.Name]
	case *ast.SelectorExpr:
		return names[x.Sel.Name]
	}
	return false
}
