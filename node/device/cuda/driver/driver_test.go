package driver

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestAttackLogOnTheStack: the compiler's log buffers once lay on a goroutine's stack, and C had their addresses as numbers. A stack
// that grew before the call moved, and the driver wrote 8 KiB into memory that was somebody else's. No address becomes a number any
// more, in the driver and in all that the helper runs; what a Go pointer in an argument leads to stays where it is.
func TestAttackLogOnTheStack(t *testing.T) {
	t.Parallel()
	files := 0
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		files++
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			to, ok := call.Fun.(*ast.Ident)
			from, isCall := call.Args[0].(*ast.CallExpr)
			if !ok || to.Name != "uintptr" || !isCall {
				return true
			}
			if s, ok := from.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Pointer" {
				t.Errorf("%s: an address as a number", set.Position(n.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil || files < 10 {
		t.Fatalf("%d files, %v", files, err)
	}
}
