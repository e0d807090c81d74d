package house

import (
	"go/ast"
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
