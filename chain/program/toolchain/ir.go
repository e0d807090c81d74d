package toolchain

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// LLVM's BPF backend, made for the Linux kernel, lacks some features of Solana's own. The differences are fixed in
// LLVM's text form, line by line:
//
//   - It refuses results that are returned through a pointer (sret), for being marked as such. The mark is taken off.
//   - A function returns one register and takes five. Functions that need more are inlined: before optimizing.
//   - It calls no memcpy, memmove or memset. Long ones, and those of unknown length, become syscalls: after.
//   - An operation overwrites its first operand. The backend does not know which operations commute, and copies a first
//     operand that is needed later although the second is not. These operands are exchanged: after. A loop of
//     arithmetic takes a seventh fewer instructions.
const (
	maxParameters = 5
	maxInline     = 96 // bytes: from there on a syscall is cheaper than words one by one
)

var (
	// The result's type is directly before the name, after any attributes.
	definition   = regexp.MustCompile(`^define .*?(\{[^@]*\}|\[[^@]*\]|i128|<[^@]*>)?\s*@("[^"]*"|[\w.$-]+)\(`)
	structResult = regexp.MustCompile(` sret\((?:\[\d+ x i8\]|%[\w.]+|\{[^)]*\})\)`)
	memory       = regexp.MustCompile(`^(.*)call void @llvm\.(memcpy|memmove|memset)(?:\.inline)?\.p0(?:\.p0)?\.` +
		`(?:i64|i32)\((.*), (i64|i32) ((?:\w+(?:\([^)]*\))? )*)([^ ,]+), i1 (?:immarg )?(true|false)\)(.*)$`)
	commutes = regexp.MustCompile(`^(\s+%\S+ = (?:add|mul|and|or|xor)(?: nuw| nsw| disjoint)* i64 )` +
		`(%[^ ,]+), (%[^ ,]+)((?:, !.*)?)$`)
	name     = regexp.MustCompile(`%(?:"[^"]*"|[\w.$-]+)`)
	syscalls = map[string]string{
		"memcpy":  "declare void @sol_memcpy_(ptr, ptr, i64)",
		"memmove": "declare void @sol_memmove_(ptr, ptr, i64)",
		"memset":  "declare void @sol_memset_(ptr, i8, i64)",
	}
)

// callable removes attributes that BPF does not support, and marks functions for inlining that it cannot call.
func callable(ir string) (string, error) {
	lines := strings.Split(structResult.ReplaceAllString(ir, ""), "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, "define ") {
			continue
		}
		m := definition.FindStringSubmatchIndex(line)
		if m == nil {
			return "", fmt.Errorf("LLVM wrote a function in an unknown form: %.200s", line)
		}
		begin := m[1]
		end, parameters := parameterList(line, begin)
		if end < 0 {
			return "", fmt.Errorf("LLVM wrote parameters in an unknown form: %.200s", line)
		}
		if m[2] >= 0 || parameters > maxParameters {
			head, rest := line[:end+1], line[end+1:]
			for _, first := range []string{" unnamed_addr", " local_unnamed_addr"} { // these stand before attributes
				if after, ok := strings.CutPrefix(rest, first); ok {
					head, rest = head+first, after
				}
			}
			lines[i] = head + " alwaysinline" + rest
		}
	}
	return strings.Join(lines, "\n"), nil
}

// parameterList is where the list that begins at begin is closed (-1: nowhere), and how many parameters it has.
func parameterList(line string, begin int) (end, count int) {
	depth := 0
	for i := begin; i < len(line); i++ {
		switch line[i] {
		case '(', '{', '[', '<':
			depth++
		case ')':
			if depth == 0 {
				if strings.TrimSpace(line[begin:i]) != "" {
					count++
				}
				return i, count
			}
			depth--
		case '}', ']', '>':
			depth--
		case ',':
			if depth == 0 {
				count++
			}
		}
	}
	return -1, 0
}

// callMemory turns long copies and fills into syscalls.
func callMemory(ir string) (string, error) {
	lines := strings.Split(ir, "\n")
	used := map[string]bool{}
	for i, line := range lines {
		if !strings.Contains(line, "@llvm.mem") || strings.HasPrefix(line, "declare ") {
			continue
		}
		m := memory.FindStringSubmatch(line)
		if m == nil || m[7] == "true" {
			return "", fmt.Errorf("LLVM wrote a copy in an unknown form: %.200s", line)
		}
		before, name, arguments, kind, length, after := strings.TrimSuffix(m[1], "tail "), m[2], m[3], m[4], m[6], m[8]
		if n, err := strconv.ParseUint(length, 10, 64); err == nil && n <= maxInline {
			continue
		}
		if kind != "i64" {
			return "", fmt.Errorf("LLVM wrote a copy of a length that is not a word: %.200s", line)
		}
		used[name] = true
		lines[i] = fmt.Sprintf("%scall void @sol_%s_(%s, i64 %s)%s", before, name, arguments, length, after)
	}
	ir = strings.Join(lines, "\n")
	for _, name := range []string{"memcpy", "memmove", "memset"} {
		if used[name] && !strings.Contains(ir, "declare void @sol_"+name+"_(") {
			ir += syscalls[name] + "\n"
		}
	}
	return ir, nil
}

// afterwards transforms optimized code.
func afterwards(ir string) (string, error) {
	ir, err := callMemory(ir)
	if err != nil {
		return "", err
	}
	return exchange(ir), nil
}

// exchange puts an operand without further uses first, if the operation is commutative.
func exchange(ir string) string {
	lines := strings.Split(ir, "\n")
	last := map[string]int{} // line in which a name last stands, in this function
	begin := 0
	for i, line := range lines {
		if line != "}" {
			for _, n := range name.FindAllString(line, -1) {
				last[n] = i
			}
			continue
		}
		for at := begin; at < i; at++ {
			if m := commutes.FindStringSubmatch(lines[at]); m != nil && last[m[2]] > at && last[m[3]] == at {
				lines[at] = m[1] + m[3] + ", " + m[2] + m[4]
			}
		}
		begin = i + 1
		clear(last)
	}
	return strings.Join(lines, "\n")
}
