package template

import (
	"path"
	"strings"
)

// instructions of a Dockerfile.
var instructions = map[string]bool{
	"ADD": true, "ARG": true, "CMD": true, "COPY": true, "ENTRYPOINT": true, "ENV": true, "EXPOSE": true, "FROM": true,
	"HEALTHCHECK": true, "LABEL": true, "RUN": true, "SHELL": true, "STOPSIGNAL": true, "USER": true, "VOLUME": true,
	"WORKDIR": true,
}

// checkDockerfile checks that a Dockerfile has known instructions, begins with FROM, and copies only files of the
// template.
func (t Template) checkDockerfile(b []byte) error {
	if !isText(string(b)) {
		return invalid("%s: want text without control characters", FileDockerfile)
	}
	from := false
	for _, i := range logicalLines(string(b)) {
		word, rest, _ := strings.Cut(i.text, " ")
		word = strings.ToUpper(word)
		switch {
		case !instructions[word]:
			return invalid("%s:%d: unknown instruction %.40q", FileDockerfile, i.line, word)
		case !from && word != "FROM" && word != "ARG":
			return invalid("%s:%d: got %s, want FROM first", FileDockerfile, i.line, word)
		case strings.TrimSpace(rest) == "":
			return invalid("%s:%d: %s without arguments", FileDockerfile, i.line, word)
		case word == "COPY" || word == "ADD":
			if err := t.checkCopy(i.line, strings.Fields(rest)); err != nil {
				return err
			}
		}
		from = from || word == "FROM"
	}
	if !from {
		return invalid("%s: no FROM", FileDockerfile)
	}
	return nil
}

// checkCopy checks the sources of COPY and ADD.
func (t Template) checkCopy(line int, args []string) error {
	for len(args) > 0 && strings.HasPrefix(args[0], "--") {
		if strings.HasPrefix(args[0], "--from=") {
			return nil
		}
		args = args[1:]
	}
	if len(args) < 2 {
		return invalid("%s:%d: want sources and a destination", FileDockerfile, line)
	}
	for _, source := range args[:len(args)-1] {
		clean := path.Clean(source)
		if clean != "." && !t.has(clean) {
			return invalid("%s:%d: the file %.80q is missing", FileDockerfile, line, source)
		}
	}
	return nil
}

// instruction is a line of a Dockerfile with its continuations.
type instruction struct {
	line int
	text string
}

func logicalLines(text string) (out []instruction) {
	open := false
	for n, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		body, continued := strings.CutSuffix(trimmed, `\`)
		if open {
			out[len(out)-1].text += " " + body
		} else {
			out = append(out, instruction{n + 1, body})
		}
		open = continued
	}
	return out
}
