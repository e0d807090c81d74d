package template

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/market/sign"
)

var (
	here      = sign.Domain{Network: "test", Chain: sign.Sum([]byte("chain"))}
	elsewhere = sign.Domain{Network: "other", Chain: sign.Sum([]byte("chain"))}
	publisher = sign.NewPrivate([32]byte{1})
	impostor  = sign.NewPrivate([32]byte{2})
)

func index(t testing.TB, by sign.Private, sequence uint64, names ...string) Index {
	t.Helper()
	var all []Template
	for _, name := range names {
		tm, err := ReadFS(name, files(nil))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tm)
	}
	i, err := NewIndex(here, by, sequence, all)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// An index is read as it was written, and finds its templates only.
func TestIndex(t *testing.T) {
	t.Parallel()
	i := index(t, publisher, 3, "b", "a")
	got, err := ParseIndex(i.Marshal(), here)
	if err != nil || got.Publisher != publisher.Key() || got.Sequence != 3 || len(got.Templates) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	e, err := got.Find("b")
	if err != nil || e.Archive() != e.Digest.String()+".tar" || e.About != "Does something." {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := got.Find("c"); err == nil || !strings.Contains(err.Error(), `template "c": not in the index`) {
		t.Error(err)
	}
	twice := read(t, nil)
	if _, err := NewIndex(here, publisher, 1, []Template{twice, twice}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a name twice: %v", err)
	}
	bad := read(t, map[string]string{FileReadme: "x"})
	if _, err := NewIndex(here, publisher, 1, []Template{bad}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a template that is not valid: %v", err)
	}
}

// No change of an index keeps its signature, and it has one form on one network.
func TestAttackIndex(t *testing.T) {
	t.Parallel()
	i := index(t, publisher, 3, "a", "b")
	text := string(i.Marshal())
	for name, changed := range map[string]string{
		"a name":             strings.Replace(text, `"a"`, `"aa"`, 1),
		"an order":           strings.Replace(text, `"a"`, `"c"`, 1),
		"a digest":           strings.Replace(text, i.Templates[0].Digest.String(), sign.Sum([]byte("x")).String(), 1),
		"a sequence":         strings.Replace(text, `"sequence": 3`, `"sequence": 4`, 1),
		"no sequence":        strings.Replace(text, `"sequence": 3`, `"sequence": 0`, 1),
		"a publisher":        strings.Replace(text, publisher.Key().String(), impostor.Key().String(), 1),
		"a format":           strings.Replace(text, "templates/1", "templates/2", 1),
		"spaces":             text + "\n",
		"another order":      strings.Replace(text, "{\n  \"format\"", "{ \"format\"", 1),
		"an unknown field":   strings.Replace(text, `"sequence"`, `"more": 1, "sequence"`, 1),
		"a line of two":      strings.Replace(text, "Does something.", `Does\u001b[2J`, 1),
		"a field again":      strings.Replace(text, `"sequence": 3`, `"sequence": 2, "sequence": 3`, 1),
		"another case":       strings.Replace(text, `"sequence"`, `"Sequence"`, 1),
		"too many bytes":     text + strings.Repeat(" ", MaxIndex),
		"another network's":  "",
		"the impostor's own": "",
	} {
		domain := here
		if name == "another network's" {
			changed, domain = text, elsewhere
		}
		if name == "the impostor's own" { // its signature, under the publisher's key
			own := index(t, impostor, 3, "a", "b")
			own.Publisher = publisher.Key()
			changed = string(own.Marshal())
		}
		if _, err := ParseIndex([]byte(changed), domain); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	big := i
	for range MaxTemplates {
		big.Templates = append(big.Templates, i.Templates...)
	}
	if err := big.check(); !errors.Is(err, ErrInvalid) {
		t.Errorf("%d templates: %v", len(big.Templates), err)
	}
}

// A publisher is accepted by the user's word for one index only, and an index does not go back.
func TestAttackPublisher(t *testing.T) {
	t.Parallel()
	const at, other = "https://a.example/index.json", "https://b.example/index.json"
	mine, theirs := index(t, publisher, 5, "a"), index(t, impostor, 9, "a")
	none := sign.Key{}
	file := filepath.Join(t.TempDir(), "pins.json")
	p, err := LoadPins(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Accept(at, mine, none); !errors.Is(err, ErrUnknownPublisher) {
		t.Errorf("the first index: %v", err)
	}
	if _, err := p.Accept(at, theirs, publisher.Key()); !errors.Is(err, ErrUnknownPublisher) {
		t.Errorf("another key than the accepted: %v", err)
	}
	if p, err = p.Accept(at, mine, publisher.Key()); err != nil {
		t.Fatal(err)
	}
	if err := p.Save(file); err != nil {
		t.Fatal(err)
	}
	if p, err = LoadPins(file); err != nil || len(p.Pins) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := p.Accept(at, mine, none); err != nil {
		t.Errorf("again: %v", err)
	}
	if _, err := p.Accept(at, theirs, none); !errors.Is(err, ErrUnknownPublisher) {
		t.Errorf("a change of the key: %v", err)
	}
	if _, err := p.Accept(other, mine, none); !errors.Is(err, ErrUnknownPublisher) {
		t.Errorf("another index: %v", err)
	}
	for _, accepted := range []sign.Key{none, publisher.Key()} {
		if _, err := p.Accept(at, index(t, publisher, 4, "a"), accepted); !errors.Is(err, ErrOldIndex) {
			t.Errorf("an old index: %v", err)
		}
	}
	next, err := p.Accept(at, index(t, publisher, 6, "a"), none)
	if err != nil || next.Pins[0].Sequence != 6 || p.Pins[0].Sequence != 5 {
		t.Errorf("the next index: %+v, %v", next, err)
	}
	if moved, err := p.Accept(at, theirs, impostor.Key()); err != nil || moved.Pins[0].Publisher != impostor.Key() {
		t.Errorf("a new key by the user's word: %+v, %v", moved, err)
	}
}

// No text makes an index panic; a read one is what it was read from.
func FuzzParseIndex(f *testing.F) {
	f.Add(index(f, publisher, 3, "a", "b").Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		i, err := ParseIndex(b, here)
		if err == nil && string(i.Marshal()) != string(b) {
			t.Error("another form")
		}
	})
}
