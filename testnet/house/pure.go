package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// PureFolders are the cores, NotPure the other packages below them.
var (
	PureFolders = []string{"market", "verify", "chain", "node/buyer/jobs", "node/provider/policy"}
	NotPure     = []string{"chain/solana", "chain/program"}
)

// pureWhy is printed with every breach.
const pureWhy = "a core has no goroutine, clock, randomness, network or file: time and randomness are arguments, " +
	"effects are returned, so that every run can be replayed and every crash enumerated"

// impureImports are packages of the standard library with external effects. A trailing slash includes the packages
// below.
var impureImports = []string{
	"os", "os/", "net", "net/", "syscall", "io/ioutil", "math/rand", "math/rand/", "crypto/rand", "log", "log/",
	"database/", "plugin", "runtime/", "testing", "testing/",
}

// impureTime are functions of package time that read the clock or wait for it.
var impureTime = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "AfterFunc": true,
	"Tick": true, "NewTimer": true, "NewTicker": true,
}

// Pure reports whether the rules of a core apply to a file. Tests and generated code are exempt. Test-support packages
// (named *test) may use the testing package and locks, but start no goroutine either: see CheckPure.
func Pure(f File) bool {
	if f.Test || f.Generated() {
		return false
	}
	for _, not := range NotPure {
		if Within(f.Dir, not) {
			return false
		}
	}
	for _, core := range PureFolders {
		if Within(f.Dir, core) {
			return true
		}
	}
	return false
}

// CheckPure returns one sentence for every place where a core starts a goroutine, reads the clock, or has an import
// with external effects.
func CheckPure(files []File) []string {
	var breaches []string
	breach := func(f File, pos token.Pos, what string) {
		breaches = append(breaches, fmt.Sprintf("%s %s: %s", f.At(pos), what, pureWhy))
	}
	for _, f := range files {
		if !Pure(f) {
			continue
		}
		support := strings.HasSuffix(f.Dir, "test")
		timeName := ""
		f.Imports(func(p, name string, pos token.Pos) {
			if p == "time" {
				timeName = name
			}
			if !support && matchesImpure(p) {
				breach(f, pos, "imports "+p)
			}
		})
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				breach(f, n.Pos(), "starts a goroutine")
			case *ast.SelectorExpr:
				pkg, isName := n.X.(*ast.Ident)
				if !support && isName && timeName != "" && pkg.Name == timeName && impureTime[n.Sel.Name] {
					breach(f, n.Pos(), "calls time."+n.Sel.Name)
				}
			}
			return true
		})
	}
	return breaches
}

func matchesImpure(p string) bool {
	for _, bad := range impureImports {
		if p == bad || strings.HasSuffix(bad, "/") && strings.HasPrefix(p, bad) {
			return true
		}
	}
	return false
}
