package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"golang.org/x/term"
)

// output is the format of -o.
type output string

const (
	OutputTable output = "table"
	outputJSON  output = "json"
	outputYAML  output = "yaml"
)

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "format" }

// Set parses the flag's value.
func (o *output) Set(text string) error {
	switch f := output(text); f {
	case OutputTable, outputJSON, outputYAML:
		*o = f
		return nil
	}
	return fmt.Errorf("want table, json or yaml")
}

// Export writes v as JSON to a file, or to standard output for "-", and reports whether it wrote a file.
func (a *App) Export(path string, v any) (file bool, err error) {
	if path != "-" {
		return true, SaveJSON(path, v)
	}
	b, err := indented(v)
	if err == nil {
		_, err = a.Out.Write(b)
	}
	return false, err
}

// SaveJSON writes v as JSON to a file.
func SaveJSON(path string, v any) error {
	b, err := indented(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}

// indented returns v as lines of JSON. It escapes characters that could control a terminal, since some texts come from
// other peers.
func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil || !bytes.ContainsFunc(b.Bytes(), unprintable) {
		return b.Bytes(), err
	}
	var out []byte
	for _, c := range b.String() {
		if unprintable(c) {
			out = fmt.Appendf(out, "\\u%04x", c)
		} else {
			out = utf8.AppendRune(out, c)
		}
	}
	return out, nil
}

// Show prints v in the format of -o: as JSON or YAML by its json tags, or as the table that table fills.
func (a *App) Show(v any, table func(t *Table)) error {
	switch a.Output {
	case outputJSON:
		text, err := indented(v)
		if err != nil {
			return err
		}
		_, err = a.Out.Write(text)
		return err
	case outputYAML:
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		text, err := yaml.JSONToYAML(b)
		if err != nil {
			return err
		}
		if bytes.ContainsFunc(text, unprintable) { // YAML does not allow it, JSON escapes it
			text, err = indented(v)
		}
		if err != nil {
			return err
		}
		_, err = a.Out.Write(text)
		return err
	}
	t := &Table{}
	table(t)
	return t.Write(a.Out)
}

// ShowFile prints the content of a file: JSON by default.
func (a *App) ShowFile(v any) error {
	if a.Output == OutputTable {
		a.Output = outputJSON
	}
	return a.Show(v, nil)
}

// Table is text in aligned columns.
type Table struct {
	rows [][]string
}

// Head sets the titles of the columns. Without titles the table is a list of names and values.
func (t *Table) Head(titles ...string) { t.rows = append([][]string{titles}, t.rows...) }

// Row adds a line; cells are printed as fmt.Print does. A line without cells is an empty one.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = cell(fmt.Sprint(c))
	}
	t.rows = append(t.rows, row)
}

// unprintable reports whether a character can control a terminal. YAML does not allow it unescaped.
func unprintable(c rune) bool { return c < ' ' && c != '\n' && c != '\t' || c >= 0x7f && c < 0xa0 }

// cell escapes text from other peers that would break the table or control the terminal.
func cell(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 {
			return ' '
		}
		return c
	}, text)
}

// Write prints the table.
func (t *Table) Write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range t.rows {
		if _, err := fmt.Fprintln(tw, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// Say prints a line of progress.
func (a *App) Say(format string, args ...any) { fmt.Fprintf(a.Err, format+"\n", args...) }

// Progress reports on standard error.
func (a *App) Progress() *Progress {
	p := &Progress{w: a.Err}
	if f, ok := a.Err.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.Live = f
	}
	return p
}
