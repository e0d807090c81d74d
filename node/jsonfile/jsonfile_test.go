package jsonfile_test

import (
	"strings"
	"testing"

	"github.com/starling-network/starling/node/jsonfile"
)

type file struct {
	Format string `json:"format"`
	N      int    `json:"n"`
}

func parse(text string) (file, error) {
	return jsonfile.Parse([]byte(text), 60, "a/1", func(f file) string { return f.Format })
}

func TestParse(t *testing.T) {
	t.Parallel()
	if f, err := parse(" {\"format\":\"a/1\",\"n\":7}\n"); err != nil || f.N != 7 {
		t.Errorf("%+v, %v", f, err)
	}
	for text, says := range map[string]string{
		"":                                 "EOF",
		"7":                                "cannot unmarshal",
		`{"format":"a/2","n":7}`:           `format "a/2", want "a/1"`,
		`{"n":7}`:                          `format ""`,
		`{"format":"a/1","m":7}`:           "unknown field",
		`{"format":"a/1"}{"format":"a/1"}`: "more than one",
		`{"format":"a/1"} x`:               "more than one",
		`{"format":"a/1"}` + strings.Repeat(" ", 60): "at most 60",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}
