package rayjobs

import (
	"fmt"
	"regexp"
	"strings"
)

// alwaysIgnored are not sent where no file says so: Ray leaves them out, too.
var alwaysIgnored = []string{".git", ".venv", "venv", "__pycache__"}

// ignoreFiles are the files whose patterns say what is not sent, of the directory that they lie in and those below.
var ignoreFiles = []string{".gitignore", ".rayignore"}

// ignore are the patterns of one file (gitignore(5)): the last one that matches decides.
type ignore struct {
	dir   string // that the file lies in, "" or "a/b/"
	rules []rule
}

type rule struct {
	pattern *regexp.Regexp // of a path below dir
	dirs    bool           // matches directories only
	keep    bool           // !pattern
}

// parseIgnore reads the patterns of a file in dir.
func parseIgnore(dir, name, text string) (ignore, error) {
	ig := ignore{dir: dir}
	for i, line := range strings.Split(text, "\n") {
		r, ok, err := parseRule(strings.TrimSuffix(line, "\r"))
		if err != nil {
			return ig, fmt.Errorf("%w: %s%s, line %d: %w", ErrPackage, dir, name, i+1, err)
		}
		if ok {
			ig.rules = append(ig.rules, r)
		}
	}
	return ig, nil
}

func parseRule(line string) (r rule, ok bool, err error) {
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	if line == "" || line[0] == '#' {
		return r, false, nil
	}
	line, r.keep = strings.CutPrefix(line, "!")
	line, r.dirs = strings.CutSuffix(line, "/")
	anchored := strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" {
		return r, false, nil
	}
	text := `^`
	if !anchored {
		text += `(?:.*/)?`
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case strings.HasPrefix(line[i:], "**/") && (i == 0 || line[i-1] == '/'):
			text += `(?:.*/)?`
			i += 2
		case line[i:] == "**" && (i == 0 || line[i-1] == '/'):
			text += `.*`
			i++
		case c == '*':
			text += `[^/]*`
		case c == '?':
			text += `[^/]`
		case c == '[' && strings.Contains(line[i+1:], "]"):
			end := i + 2 + strings.Index(line[min(i+2, len(line)):], "]") // a ] right after the [ is one of the class
			if end < i+2 {
				text += `\[`
				continue
			}
			class := strings.ReplaceAll(line[i+1:end], `\`, `\\`)
			if strings.HasPrefix(class, "!") {
				class = "^" + class[1:]
			}
			text += "[" + strings.ReplaceAll(class, "[", `\[`) + "]"
			i = end
		case c == '\\' && i+1 < len(line):
			i++
			text += regexp.QuoteMeta(line[i : i+1])
		default:
			text += regexp.QuoteMeta(line[i : i+1])
		}
	}
	r.pattern, err = regexp.Compile("(?s)" + text + `$`)
	if err != nil {
		return r, false, fmt.Errorf("%q is not a pattern", line)
	}
	return r, true, nil
}

// out says whether the patterns leave a path out.
func (ig ignore) out(path string, dir bool) bool {
	below, ok := strings.CutPrefix(path, ig.dir)
	if !ok {
		return false
	}
	out := false
	for _, r := range ig.rules {
		if (dir || !r.dirs) && r.pattern.MatchString(below) {
			out = !r.keep
		}
	}
	return out
}
