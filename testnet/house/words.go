package house

import (
	"bytes"
	"go/ast"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// wordBars names the bar of each word that is counted.
var wordBars = map[string]string{
	"what": "word-what",
	"who":  "word-who", "whose": "word-who", "whoever": "word-who",
	"tell": "word-tell", "tells": "word-tell", "told": "word-tell",
}

// words measures the language of comments, for each folder of the top level. Counts are per 10,000 words.
func words(files []File) []Figure {
	total, saysWhether := counts{}, counts{}
	found := map[string]counts{"word-what": {}, "word-who": {}, "word-tell": {}}
	for _, f := range files {
		folder := folderOf(f)
		for _, group := range f.AST.Comments {
			text := strings.ToLower(group.Text())
			saysWhether[folder] += strings.Count(strings.Join(strings.Fields(text), " "), "says "+"whether")
			if !production(f) {
				continue
			}
			for _, word := range strings.FieldsFunc(text, notInWord) {
				total[folder]++
				if bar, ok := wordBars[word]; ok {
					found[bar][folder]++
				}
			}
		}
	}
	out := saysWhether.figures("says-whether")
	for bar, in := range found {
		for folder, n := range in {
			out = append(out, Figure{bar, folder, (10000*n + total[folder] - 1) / total[folder]})
		}
	}
	return out
}

func notInWord(r rune) bool { return (r < 'a' || r > 'z') && r != '\'' }

// documentation counts exported functions, methods and types without a comment, and routes of the API that its
// reference does not have.
func documentation(files []File) []Figure {
	missing, routes := counts{}, counts{}
	for _, f := range files {
		if !production(f) || f.AST.Name.Name == "main" {
			continue
		}
		for _, d := range f.AST.Decls {
			missing[f.Dir] += undocumented(d)
		}
	}
	reference := apiReference(files)
	for _, f := range files {
		if production(f) && Within(f.Dir, APIFolder) {
			routes[f.Dir] += undocumentedRoutes(f, reference)
		}
	}
	return append(missing.figures("undocumented"), routes.figures("undocumented-routes")...)
}

// undocumented counts the exported names of a declaration that have no comment. A group's comment is that of its types.
func undocumented(d ast.Decl) int {
	switch d := d.(type) {
	case *ast.FuncDecl:
		receiver := receiverOf(d)
		if d.Name.IsExported() && (receiver == "" || ast.IsExported(receiver)) && d.Doc == nil && !wellKnown[d.Name.Name] {
			return 1
		}
	case *ast.GenDecl:
		n := 0
		for _, s := range d.Specs {
			spec, ok := s.(*ast.TypeSpec)
			if ok && spec.Name.IsExported() && spec.Doc == nil && spec.Comment == nil && d.Doc == nil {
				n++
			}
		}
		return n
	}
	return 0
}

// wellKnown are methods of interfaces of the standard library, which define their meaning.
var wellKnown = map[string]bool{
	"String": true, "Error": true, "Unwrap": true, "Is": true, "Close": true, "Len": true, "Less": true, "Swap": true,
	"Read": true, "Write": true, "MarshalJSON": true, "UnmarshalJSON": true, "MarshalText": true, "UnmarshalText": true,
	"ServeHTTP": true, "Push": true, "Pop": true,
}

// APIFolder holds the routes of the local API and, in its package comment, their reference.
const APIFolder = "node/api"

var (
	routePattern   = regexp.MustCompile(`^(GET|POST|PUT|PATCH|DELETE) /[^ ]*$`)
	referenceRoute = regexp.MustCompile(`\b(GET|POST|PUT|PATCH|DELETE) +(/[^ \[?\n]*)`)
)

// apiReference returns the routes in the package comments of APIFolder: "GET /v1/jobs".
func apiReference(files []File) map[string]bool {
	reference := map[string]bool{}
	for _, f := range files {
		if f.Test || !Within(f.Dir, APIFolder) || f.AST.Doc == nil {
			continue
		}
		for _, m := range referenceRoute.FindAllStringSubmatch(f.AST.Doc.Text(), -1) {
			reference[m[1]+" "+m[2]] = true
		}
	}
	return reference
}

// undocumentedRoutes counts the patterns in a file that are neither in the reference nor followed by a summary, as in
// Route{"GET /v1/jobs/{id}", "Show a job"}.
func undocumentedRoutes(f File, reference map[string]bool) int {
	summarised := map[ast.Expr]bool{}
	n := 0
	ast.Inspect(f.AST, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.CompositeLit:
			for i := 0; i+1 < len(node.Elts); i++ {
				summarised[node.Elts[i]] = stringOf(node.Elts[i+1]) != ""
			}
		case *ast.BasicLit:
			route := stringOf(node)
			if routePattern.MatchString(route) && !reference[route] && !summarised[node] {
				n++
			}
		}
		return true
	})
	return n
}

// stringOf returns the value of a string literal, and "" for any other expression.
func stringOf(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || !slices.Contains([]byte("\"`"), lit.Value[0]) {
		return ""
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace([]byte(s)))
}
