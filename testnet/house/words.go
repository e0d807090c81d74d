package house

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// phrases names the bar of each phrase that is counted, in lower case. A longer phrase has precedence.
var phrases = map[string]string{
	"what": "word-what",
	"who":  "word-who", "whose": "word-who", "whoever": "word-who",
	"tell": "word-tell", "tells": "word-tell", "told": "word-tell",
	"nobody": "word-nobody", "somebody": "word-nobody", "anybody": "word-nobody", "everybody": "word-nobody",
	"says": "word-says", "hear": "word-says", "hears": "word-says", "heard": "word-says",
	"wants": "word-says", "knows": "word-says", "learns": "word-says",
	"that which": "word-one-that", "those that": "word-one-that", "those who": "word-one-that",
	"one that": "word-one-that", "ones that": "word-one-that",
	"so many": "word-so-many", "so much": "word-so-many", "so long": "word-so-many",
	"any more": "word-any-more", "for ever": "word-any-more", "all the same": "word-any-more",
	"no more than": "word-any-more",
}

var phrase = func() *regexp.Regexp {
	all := slices.Collect(maps.Keys(phrases))
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) })
	return regexp.MustCompile(`\b(` + strings.Join(all, "|") + `)\b`)
}()

// language is the count of words and of phrases for one subject.
type language struct {
	words int
	found map[string]int // by bar
}

// add counts one text.
func (l *language) add(text string) {
	fields := strings.Fields(strings.ToLower(text))
	l.words += len(fields)
	for _, found := range phrase.FindAllString(strings.Join(fields, " "), -1) {
		l.found[phrases[found]]++
	}
}

// languages holds a language for each subject.
type languages map[string]*language

func (l languages) of(subject string) *language {
	if l[subject] == nil {
		l[subject] = &language{found: map[string]int{}}
	}
	return l[subject]
}

// figures returns the count per 10,000 words of each bar and subject.
func (l languages) figures() []Figure {
	var out []Figure
	for subject, in := range l {
		for bar, n := range in.found {
			out = append(out, Figure{bar, subject, (10000*n + in.words - 1) / in.words})
		}
	}
	return out
}

// words measures the language of the folders of the top level: of the comments in production code (subject "node"),
// and of its sentences in errors, help and messages ("node:texts").
func words(files []File) []Figure {
	saysWhether, found := counts{}, languages{}
	for _, f := range files {
		folder := folderOf(f)
		for _, group := range f.AST.Comments {
			text := group.Text()
			line := strings.ToLower(strings.Join(strings.Fields(text), " "))
			saysWhether[folder] += strings.Count(line, "says "+"whether")
			if production(f) {
				found.of(folder).add(text)
			}
		}
		if production(f) && f.Dir != "testnet/house" {
			texts := found.of(folder + ":texts")
			for _, text := range sentences(f.AST) {
				texts.add(text)
			}
		}
	}
	return append(saysWhether.figures("says-whether"), found.figures()...)
}

// sentences returns the string literals of a file that have three words or more.
func sentences(f *ast.File) []string {
	var found []string
	ast.Inspect(f, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err == nil && len(strings.Fields(text)) >= 3 {
			found = append(found, text)
		}
		return true
	})
	return found
}

// code is a block or a span of code in a page, which is no English.
var code = regexp.MustCompile("(?s)```.*?```|`[^`]*`")

// MeasurePages measures the language of the pages (.md) of each folder of the top level, as Measure does for sources:
// subject "node:pages".
func MeasurePages(root string) ([]Figure, error) {
	found := languages{}
	err := Walk(root, func(rel string) error {
		if path.Ext(rel) != ".md" || strings.Contains(rel, "/testdata/") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, rel))
		if err != nil {
			return fmt.Errorf("reading %s: %w", rel, err)
		}
		folder, _, _ := strings.Cut(rel, "/")
		found.of(folder + ":pages").add(code.ReplaceAllString(string(text), ""))
		return nil
	})
	return excess(found.figures()), err
}

// documentation counts exported functions, methods and types without a comment.
func documentation(files []File) []Figure {
	missing := counts{}
	for _, f := range files {
		if !production(f) || f.AST.Name.Name == "main" {
			continue
		}
		for _, d := range f.AST.Decls {
			missing[f.Dir] += undocumented(d)
		}
	}
	return missing.figures("undocumented")
}

// undocumented counts the exported names of a declaration that have no comment. A group's comment is that of its types.
func undocumented(d ast.Decl) int {
	switch d := d.(type) {
	case *ast.FuncDecl:
		receiver := receiverOf(d)
		if d.Name.IsExported() && (receiver == "" || ast.IsExported(receiver)) && d.Doc == nil &&
			!wellKnown[d.Name.Name] {
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
